"""xnli.sh, understanding.sh and xtreme.sh at nano size, from small releases to tables of scores."""

import json
import random

import pytest

from preprocess.commands.prepare import main as preprocess
from preprocess.readers import xnli
from recipes.twelve_words import WORDS, draw, inference, sentence, write, write_corpus
from recipes.xglue import small_release
from recipes.xtreme import small_release as small_xtreme
from tests.recipes.configurations import RECIPES
from tests.recipes.scripts import ROOT, run, succeeded

pytestmark = pytest.mark.usefixtures("warm")
NANO = ["--layers", 1, "--embed-dim", 16, "--ffn-dim", 32, "--heads", 2, "--max-update", 2, "--cpu"]


def write_xnli(folder):
    """Both releases: 12 training pairs of each language, and 4 of validation and test."""
    rng = random.Random(1)
    rows = {"dev": [], "test": []}
    for language in xnli.LANGUAGES:
        pairs = [inference(WORDS[language].split(), draw(rng), draw(rng), rng) for _ in range(20)]
        lines = "".join("\t".join(pair).replace("contradiction", "contradictory") + "\n" for pair in pairs[8:])
        write(folder / f"XNLI-MT-1.0/multinli/multinli.train.{language}.tsv", f"premise\thypo\tlabel\n{lines}")
        for split, first in (("dev", 0), ("test", 4)):
            rows[split] += [f"{language}\t{label}\t{a}\t{b}\t{a}\t{b}\n" for a, b, label in pairs[first : first + 4]]
    header = "language\tgold_label\tsentence1\tsentence2\tsentence1_tokenized\tsentence2_tokenized\n"
    for split, lines in rows.items():
        write(folder / f"XNLI-1.0/xnli.{split}.tsv", header + "".join(lines))


@pytest.mark.parametrize("system", ["unicoder", pytest.param("xlm", marks=pytest.mark.slow)])
def test_xnli_from_its_archives_to_a_table(tmp_path, system):
    """English alone; all languages (multi-language) in another folder; repeated, it trains no further.

    --launch starts fairseq-train only.
    """
    write_xnli(tmp_path / "release")
    write_corpus(tmp_path / "corpus", xnli.LANGUAGES, 400)
    assert preprocess([str(tmp_path / "corpus/corpus.yaml"), str(tmp_path / "data-bin")]) == 0
    config = RECIPES / system / "config/finetune-toy.yaml"
    start = ["bash", ROOT / f"recipes/{system}/xnli.sh", tmp_path / "release", tmp_path / "data-bin", "random"]
    nano = ["--config", config, *NANO, "--batch-size", 8]
    shown, printed = succeeded(run(*start, tmp_path / "en", *nano, "--launch", "nice -n 1", folder=tmp_path))
    if system == "xlm":
        shown += (tmp_path / "en/test.log").read_text(encoding="utf-8")
    trained, validated = [line.split() for line in shown.splitlines() if line.startswith("+ ")]
    assert trained[1:5] == ["nice", "-n", "1", "fairseq-train"] and validated[1] == "fairseq-validate"
    scores = json.loads((tmp_path / "en/scores.json").read_text(encoding="utf-8"))
    assert list(scores["languages"]) == list(xnli.LANGUAGES) and scores["missing"] == []
    rows = [line.split()[0] for line in printed.splitlines() if line.split() and line.split()[0] in xnli.LANGUAGES]
    assert rows == list(xnli.LANGUAGES)
    written = (tmp_path / "en/checkpoint_best.pt").stat().st_mtime_ns
    _, again = succeeded(run(*start, tmp_path / "en", *nano, folder=tmp_path))
    assert again.splitlines()[-15:] == printed.splitlines()[-15:]
    assert (tmp_path / "en/checkpoint_best.pt").stat().st_mtime_ns == written
    if system == "xlm":
        everything = ["--train-langs", ",".join(xnli.LANGUAGES), "--grid", "lr=1e-5,2e-6", "--best-by-language"]
        succeeded(run(*start, tmp_path / "all", *nano, *everything, folder=tmp_path))
        best = json.loads((tmp_path / "all/best.json").read_text(encoding="utf-8"))
        assert set(best["best"]) == {"average", *xnli.LANGUAGES} and set(best["validation"]) == {"lr=1e-5", "lr=2e-6"}
        assert "'train_langs': 'ar,bg,de,el,en" in (tmp_path / "all/grid/lr=2e-6/train.log").read_text(encoding="utf-8")


def test_a_script_ends_with_a_training_that_a_signal_stopped(tmp_path):
    """Also where a launcher hides the status; an option of the script is no value of another."""
    script = '. recipes/common.sh; fairseq-train data --save-dir "$1/run" --launch "bash $1/launcher"; echo further'
    (tmp_path / "launcher").write_text('cd "$(dirname "$0")" && mkdir -p run && touch run/.stopped\n', encoding="utf-8")
    done = run("bash", "-c", script, "recipe.sh", tmp_path)
    assert (done.returncode, done.stdout) == (75, "")
    assert done.stderr.endswith("recipe.sh: stopped: run the same command to resume\n")
    done = run("bash", "-c", '. recipes/common.sh; take predict -- "$@"', "recipe.sh", "--predict", "--launch", "a b")
    assert (done.returncode, done.stderr) == (2, "recipe.sh: --predict needs a value\n")


@pytest.mark.slow
def test_multi30k_from_its_text_to_a_score(tmp_path):
    """All epochs' checkpoints count if there are fewer than ten."""
    rng = random.Random(1)
    for split, count in (("train", 200), ("val", 20), ("test_2016_flickr", 20)):
        concepts = [draw(rng) for _ in range(count)]
        for code in ("en", "de"):
            lines = [sentence(WORDS[code].split(), each) for each in concepts]
            write(tmp_path / f"tok/{split}.lc.norm.tok.{code}", "".join(f"{line}\n" for line in lines))
    nano = ["--encoder-layers", 1, "--decoder-layers", 1, "--max-epoch", 3, "--cpu"]
    line = ["bash", "recipes/xlm/multi30k.sh", "en-de", tmp_path / "tok", tmp_path / "run", *nano]
    _, printed = succeeded(run(*line))
    assert json.loads((tmp_path / "run/bleu.json").read_text())["lines"] == 20 and "sacrebleu" in printed
    _, again = succeeded(run(*line))
    assert again.splitlines()[-3:] == printed.splitlines()[-3:]


@pytest.mark.slow
def test_xglue_from_the_release_to_a_table(tmp_path):
    """All nine tasks; then two of them with a wrong split."""
    small_release.main([str(tmp_path / "release"), str(tmp_path / "corpus")])
    assert preprocess([str(tmp_path / "corpus/corpus.yaml"), str(tmp_path / "data-bin")]) == 0
    own = [tmp_path / "release", tmp_path / "data-bin", "random", tmp_path / "out"]
    own += ["--config", RECIPES / "xglue/config/understanding-toy.yaml", *NANO, "--predict", "--cpu"]
    succeeded(run("bash", "recipes/xglue/understanding.sh", "all", "test", *own))
    scores = json.loads((tmp_path / "out/scores.json").read_text(encoding="utf-8"))
    assert scores["complete"] == 9 and "| XNLI" in (tmp_path / "out/table.md").read_text(encoding="utf-8")
    done = run("bash", "recipes/xglue/understanding.sh", "NER,POS", "dev", *own)
    assert (done.returncode, done.stderr) == (2, "understanding.sh: SPLIT dev: one of valid, test\n")


@pytest.mark.slow
def test_xtreme_from_the_download_to_a_table(tmp_path):
    """A task of each kind; without labels it ends with the submission."""
    small_xtreme.main([str(tmp_path / name) for name in ("download", "labels", "corpus")])
    assert preprocess([str(tmp_path / "corpus/corpus.yaml"), str(tmp_path / "data-bin")]) == 0
    data, body = tmp_path / "data-bin", tmp_path / "veco"
    toy = ["--config", RECIPES / "veco/config/toy.yaml", "--max-update", 2, "--cpu"]
    succeeded(run("bash", "recipes/veco/pretrain.sh", data, body, "random", *toy))
    own = [tmp_path / "download", data, body / "checkpoint_last.pt", tmp_path / "out"]
    flags = ["--config", RECIPES / "xlm/config/finetune-toy.yaml", "--arch", "xl_xlmr_tiny", "--max-update", 2, "--cpu"]
    flags += ["--predict", "--cpu"]
    start = ["bash", "recipes/veco/xtreme.sh"]
    tasks = ["pawsx", "udpos", "xquad", "bucc2018", "tatoeba"]
    succeeded(run(*start, ",".join(tasks), *own, tmp_path / "labels", *flags))
    scores = json.loads((tmp_path / "out/scores.json").read_text(encoding="utf-8"))
    assert list(scores["tasks"]) == tasks and "| pawsx" in (tmp_path / "out/table.md").read_text(encoding="utf-8")
    (tmp_path / "out/scores.json").unlink()
    succeeded(run(*start, "pawsx", *own, "none", *flags))
    assert not (tmp_path / "out/scores.json").exists()
