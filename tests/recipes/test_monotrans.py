"""MonoTrans' recipes on a tiny sample: four steps, the best of several seeds, baselines, mistakes, configurations."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from fairseq_xl.checkpoints import language_modules
from fairseq_xl.checkpoints.embedding_files import read as read_vectors
from fairseq_xl.commands import main as fairseq_xl_command
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError
from fairseq_xl.io.checkpoints import load_plain, save_checkpoint
from preprocess.commands.prepare import main as preprocess
from preprocess.disjoint import main as disjoint
from recipes import best_seed, experiment
from tests.recipes import scripts
from tests.recipes.answers import RANKED, TAGGED, asked
from tests.recipes.scripts import write_pairs
from tests.tasks.tiny_text import write

pytestmark = pytest.mark.usefixtures("warm")
ROOT = Path(__file__).resolve().parents[2]
RECIPE = "recipes/monotrans"
CONFIGS, COMPARISON = ROOT / RECIPE / "config", ROOT / RECIPE / "experiment.yaml"
TOY, CLASSIFY_TOY = (["--config", f"{RECIPE}/config/{name}.yaml"] for name in ("toy", "finetune-toy"))
ONE = ["--layers", 1, "--embed-dim", 16, "--ffn-dim", 32]
UPDATE = ["--max-update", 1]
TWO = ["--max-update", 2]  # the first one's learning rate is 0


def run(script, *arguments, **environment):
    return scripts.run("bash", f"{RECIPE}/{script}", *arguments, **environment)


def succeed(*command, **environment):
    done = run(*command, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def nano(tmp_path_factory, copy_sample):
    """A folder with a tiny sample, and data/XX of each of two languages."""
    folder = tmp_path_factory.mktemp("monotrans")
    copy_sample(folder / "sample")
    for code in ("en", "de"):
        text = {split: str(folder / f"sample/mono/{split}.{code}") for split in ("train", "valid")}
        description = {"languages": [code], "vocabulary": {"size": 300}, "monolingual": {code: text}}
        (folder / f"{code}.yaml").write_text(json.dumps(description))
        preprocess([str(folder / f"{code}.yaml"), str(folder / "data" / code)])
    return folder


@pytest.fixture(scope="module")
def made(nano):
    """Steps 1 and 3, an update each: body and classifier."""
    succeed("pretrain.sh", nano / "data/en", nano / "body", *TOY, *ONE, *UPDATE)
    body = nano / "body/checkpoint_last.pt"
    files = nano / "sample/tasks/nc"
    succeed("finetune.sh", nano / "data/en", nano / "classifier", files, "en", body, *CLASSIFY_TOY, *ONE, *UPDATE)
    return body, nano / "classifier/checkpoint_best.pt"


def test_best_of_two_language_modules_and_zero_shot(nano, made):
    body, classifier = made
    files, data = nano / "sample/tasks/nc", nano / "data/de"
    command = ["best-language-module.sh", data, nano / "de", body, classifier, files, "de", "3,5", *TOY, *ONE, *UPDATE]
    done = succeed(*command)
    scores = {seed: json.loads((nano / f"de/{seed}/valid/scores.json").read_text())["accuracy"] for seed in (3, 5)}
    best = 5 if scores[5] > scores[3] else 3
    assert f"best: seed {best}" in done.stderr
    assert (nano / "de/language-module.pt").read_bytes() == (nano / f"de/{best}/language-module.pt").read_bytes()
    assert (nano / "de/3/valid/predictions/valid.de.tsv").exists()
    states = [language_modules.read(nano / f"de/{seed}/language-module.pt", "de").state for seed in (3, 5)]
    assert not (states[0][language_modules.TOKENS] == states[1][language_modules.TOKENS]).all()
    content = load_plain(body)
    content["model"]["encoder.layers.0.ffn.up.weight"] += 1
    save_checkpoint(content, nano / "another.pt")
    english = [command[0], nano / "data/en", *command[2:6], "en", *command[7:]]
    learned = nano / "learned-otherwise"
    learned.mkdir()
    shutil.copy(nano / "de/language-module.pt", learned)
    done = run(*english)
    told = f"{nano}/de was made with other settings or weights (then de, now en): remove it or choose another folder"
    assert done.returncode == 1 and f"error: {told}\n" in done.stderr
    for other, told in (
        (
            [*command[:2], learned, *command[3:]],
            f"best-language-module.sh: {learned} has a language-module.pt and no settings.json: name another SAVE_DIR",
        ),
        (
            [*command[:2], nano / "no", body, body, *command[5:]],
            f"fairseq_xl: error: CHECKPOINT {body} is not a classifier of finetune.sh",
        ),
        (
            [*command[:2], nano / "no", nano / "another.pt", *command[4:]],
            f"fairseq_xl: error: CHECKPOINT {classifier} was not fine-tuned from BODY {nano / 'another.pt'}",
        ),
    ):
        done = run(*other)
        assert done.returncode in (1, 2) and done.stderr == f"{told}\n"
    assert not (nano / "no").exists()
    before = (nano / "de/3/language-module.pt").read_bytes()
    for changed in ([body, *TOY, *ONE, "--max-update", 2], [classifier, *TOY, *ONE, *UPDATE]):
        done = run("add-language.sh", data, nano / "de/3", *changed, "--seed", 3)
        assert done.returncode == 1 and f"error: {nano}/de/3 was made with other settings or weights" in done.stderr
        assert (nano / "de/3/language-module.pt").read_bytes() == before
    languages = f"de={data}:{nano / 'de/language-module.pt'}", f"en={nano / 'data/en'}"
    succeed("zero-shot.sh", classifier, nano / "scores", files, *languages)
    found = json.loads((nano / "scores/scores.json").read_text())
    assert found["languages"].keys() == {"de", "en"}
    gold = (files / "test.de.tsv").read_text().splitlines()
    rows = (nano / "scores/predictions/test.de.tsv").read_text().splitlines()
    assert [row.split("\t")[1] for row in rows] == [line.split("\t")[0] for line in gold]


@pytest.mark.slow
def test_questions_are_answered_with_each_language_module(nano, made, tmp_path):
    """M11: XQuAD's steps; zero-shot.sh passes --normalization to the score."""
    body, _ = made
    module = tmp_path / "de/language-module.pt"
    succeed("add-language.sh", nano / "data/de", module.parent, body, *TOY, *ONE, *UPDATE)
    for name in ("train.en", "valid.en", "test.en", "test.de"):
        (tmp_path / f"{name}.json").write_text(asked("1"), encoding="utf-8")
    options = ["--type", "question-answering", "--question-length", 8]
    command = ["finetune.sh", nano / "data/en", tmp_path / "reader", tmp_path, "en", body, *CLASSIFY_TOY, *ONE]
    succeed(*command, *options, *UPDATE)
    languages = f"en={nano}/data/en", f"de={nano}/data/de:{module}"
    checkpoint = tmp_path / "reader/checkpoint_best.pt"
    command = ["zero-shot.sh", checkpoint, tmp_path / "scores", tmp_path, *languages, *options[:2]]
    succeed(*command, "--normalization", "mlqa")
    scores = json.loads((tmp_path / "scores/scores.json").read_text())
    assert scores["languages"].keys() == {"en", "de"} and scores["normalization"] == "mlqa"
    done = run(*command[:-1], "classification", "--normalization", "mlqa")
    assert done.returncode == 2 and "--normalization is for --type question-answering" in done.stderr


@pytest.mark.slow
def test_tags_are_learned_and_tested_without_a_pooler(nano, made, tmp_path):
    """--type may stand anywhere among the flags; the other language has its own module."""
    body, _ = made
    for name in ("train.en", "valid.en", "test.en", "test.de"):
        (tmp_path / f"{name}.tsv").write_text("the\tO\nriver\tB-X\n\n", encoding="utf-8")
    options = [*CLASSIFY_TOY, *ONE, "--type", "tagging", *UPDATE]
    done = succeed("finetune.sh", nano / "data/en", tmp_path / "tagger", tmp_path, "en", body, *options)
    assert "config/tagging.yaml" in done.stderr and "config/without-pooler.yaml" in done.stderr
    checkpoint = tmp_path / "tagger/checkpoint_best.pt"
    languages = [f"{code}={nano}/data/{code}" for code in ("en", "de")]
    command = ["zero-shot.sh", checkpoint, tmp_path / "scores", tmp_path, languages[0], "--type", "tagging"]
    succeed(*command, "--split", "valid", "--predict", "--batch-size 1")
    scores = json.loads((tmp_path / "scores/scores.json").read_text())
    assert "f1" in scores["languages"]["en"] and "--batch-size 1" in (tmp_path / "scores/valid.en.log").read_text()
    (tmp_path / "test.en.tsv").write_text("the\t_\nriver\t_\n\n", encoding="utf-8")
    assert succeed(*command).stdout == f"not scored (no labels): {tmp_path}/scores/predictions\n"
    done = run(*command[:4], languages[1], "--type", "tagging")
    assert done.returncode == 1 and f"{languages[1]}: it has no MODULE\n" in done.stderr
    for script in (["finetune.sh", "data", "save", tmp_path, "en", body], command[:5]):
        done = run(*script, "--type", "parsing")
        assert done.returncode == 2 and "TYPE parsing: choose classification, ranking, tagging or " in done.stderr


def test_of_equal_seeds_the_first_is_the_best(tmp_path, capsys):
    """One without an average is named."""

    def write_score(seed, **score):
        (tmp_path / f"{seed}/valid").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{seed}/valid/scores.json").write_text(json.dumps(score))

    for scores, best in (((50.0, 66.7, 66.7), 2), ((9.5, 8.25, 10.0), 3), ((12.5, 12.5, 0.0), 1)):
        for seed, accuracy in enumerate(scores, start=1):
            write_score(seed, accuracy=accuracy)
        best_seed.choose(str(tmp_path), "1,2,3")
        assert capsys.readouterr().out == f"{best}\n"
    write_score(1, f1=1.0)
    with pytest.raises(UserError, match="1/valid/scores.json has no average accuracy"):
        best_seed.choose(str(tmp_path), "1")


def test_wrong_arguments_are_refused_first(tmp_path):
    """In one sentence, and no folder is made."""
    there, none = tmp_path / "there", tmp_path / "none"
    there.touch()
    (tmp_path / "en").mkdir()
    data = tmp_path / "data"
    data.mkdir()
    for language in ("de", "en"):
        write(data / f"test.{language}.tsv", [])
    write(data / "dict.txt", ["[de] 0", "[en] 0"])
    best, joint = ["best-language-module.sh", data, "out", there], ["joint.sh", data, "out", data, "en"]
    form = "expected LANGUAGE=DATA or LANGUAGE=DATA:MODULE"
    for command, told in (
        (["zero-shot.sh", none, "out", tmp_path, "de=data"], f"CHECKPOINT {none}: no such file"),
        (["zero-shot.sh", there, "out", none, "de=data"], f"TASK_FILES {none}: no such folder"),
        (["zero-shot.sh", there, "out", tmp_path, f"de=data:{none}"], f"de=data:{none}: there is no MODULE {none}"),
        (["zero-shot.sh", there, "out", tmp_path, "de=a", "de=b"], "de=a: de is named twice"),
        *((["zero-shot.sh", there, "out", tmp_path, wrong], f"{wrong}: {form}") for wrong in ("de", "de=", "de=x:")),
        (["best-language-module.sh", data, "out", none, there, data, "de", 1], f"BODY {none}: no such file or folder"),
        (["best-language-module.sh", data, "out", data, none, data, "de", 1], f"CHECKPOINT {none}: no such file"),
        ([*best, none, data, "de", 1], f"CHECKPOINT {none}: no such file"),
        ([*best, there, data, "fr", 1], f"{data}/dict.txt has no symbol of language 'fr'"),
        ([*best, there, data, "de", "1,x"], "SEEDS x: a whole number above 0 is needed"),
        ([*best, there, data, "de", 1], f"TASK_FILES {data}: it has no valid.de.tsv"),
        ([*joint, "fr", there], f"{data}/dict.txt has no symbol of language 'fr'"),
        ([*joint, "de,de", there], "en and de,de: one is named twice"),
        (["finetune.sh", "data", "out", none, "en", there], f"TASK_FILES {none}: no such folder"),
        (["clwe.sh", none, "out", "de", there], f"{none}/dict.txt: no such file"),
        (["clwe.sh", data, "out", "fr", there], f"{data}/dict.txt has no symbol of language 'fr'"),
        (["clwe.sh", data, "out", "de", none], f"VECTORS {none}: no such file"),
    ):
        command = [tmp_path / "out" if word == "out" else word for word in command]
        done = run(*command)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
        assert done.stderr.startswith(f"{command[0]}: {told}"), done.stderr
        assert not (tmp_path / "out").exists()


def compare(corpus, output, *arguments):
    """Runs the comparison on English and German."""
    experiment.main([str(COMPARISON), f"corpus={corpus}", "others=de", "--output", str(output), *arguments])


def test_an_argument_that_is_left_out():
    """What follows it, a configuration or a flag, does not take its place."""
    for command in (["joint.sh", "data", "out", "files", "en", "body", *TOY], ["pretrain.sh", "data", "--lr", "1"]):
        done = run(*command)
        assert done.returncode == 2 and done.stderr.startswith(f"usage: {command[0]} DATA SAVE_DIR"), done.stderr


def test_models_and_modules_that_do_not_fit_are_refused(nano, made):
    def refused(*command):
        done = run("zero-shot.sh", *command)
        assert done.returncode == 1
        return done.stderr

    files, german = nano / "sample/tasks/nc", f"de={nano / 'data/de'}"
    told = f"CHECKPOINT {made[0]} is a pre-trained model, not a classifier of finetune.sh\n"
    assert refused(made[0], nano / "none", files, f"en={nano / 'data/en'}").endswith(told)
    first, second = refused(made[1], nano / "forgotten", files, german).splitlines()
    assert first.startswith("fairseq_xl: error: ") and "another dictionary" in first
    assert second == f"{german}: it has no MODULE"


@pytest.mark.slow
def test_a_language_is_added_to_a_model_of_another_recipe(nano):
    """Steps 2 to 4 over an XLM, with the flags that the README names."""
    form = "--language-embeddings added --output-form plain --segment-embeddings none".split()
    objective = ["--objectives", "mlm", "--objective-options", "mlm.length=64"]
    toy = ["--config", "recipes/xlm/config/pretrain-toy.yaml"]
    succeed("../xlm/pretrain.sh", nano / "data/en", nano / "xlm", *toy, *objective, *ONE, *UPDATE)
    body, files = nano / "xlm/checkpoint_last.pt", nano / "sample/tasks/nc"
    succeed("add-language.sh", nano / "data/de", nano / "xlm-de", body, *TOY, *ONE, *form, *objective, *TWO)
    before, after = (load_plain(path)["model"] for path in (body, nano / "xlm-de/checkpoint_last.pt"))
    assert all(
        after[name].equal(value) for name, value in before.items() if not language_modules.in_module(name, False)
    )
    command = ["finetune.sh", nano / "data/en", nano / "xlm-nc", files, "en", body, *CLASSIFY_TOY]
    succeed(*command, *ONE, *form, *UPDATE)
    languages = f"en={nano / 'data/en'}", f"de={nano / 'data/de'}:{nano / 'xlm-de/language-module.pt'}"
    succeed("zero-shot.sh", nano / "xlm-nc/checkpoint_best.pt", nano / "xlm-scores", files, *languages)
    assert json.loads((nano / "xlm-scores/scores.json").read_text())["languages"].keys() == {"en", "de"}


@pytest.fixture(scope="module")
def apart(nano):
    """English and German in one data-bin, without a common piece."""
    assert disjoint([str(nano / "data/disjoint"), str(nano / "data/en"), str(nano / "data/de")]) == 0
    return nano / "data/disjoint"


@pytest.mark.slow
def test_joint_model_of_vocabularies_apart(nano, apart):
    succeed("pretrain.sh", apart, nano / "joint", *TOY, *ONE, *UPDATE)
    body, files = nano / "joint/checkpoint_last.pt", nano / "sample/tasks/nc"
    succeed("joint.sh", apart, nano / "pair", files, "en", "de", body, *CLASSIFY_TOY, *ONE, *TWO)
    found = json.loads((nano / "pair/scores.json").read_text())
    assert found["languages"].keys() == {"en", "de"}
    before, after = (
        load_plain(path)["model"][language_modules.TOKENS] for path in (body, nano / "pair/checkpoint_best.pt")
    )
    changed = (before != after).any(dim=1)
    symbols = XLDictionary.load(apart / "dict.txt").symbols
    assert any(changed) and all(
        symbols[place].endswith("@en") for place in changed.nonzero().flatten()
    )  # M8: all of it
    log = (nano / "joint/train.log").read_text()
    assert "nsp_mlm_en_loss" in log and "nsp_mlm_de_loss" in log


@pytest.mark.slow
def test_mapped_embeddings(nano, monkeypatch, capsys):
    monkeypatch.chdir(nano)
    data, files = nano / "data", nano / "sample/tasks/nc"
    for code in ("en", "de"):
        options = "--dim 24 --subsample 1e-2 --buckets 100 --epochs 1"
        fairseq_xl_command(f"embeddings skipgram {data}/{code} {code} {code}.npz {options}".split())
    small = [*ONE, "--token-embed-dim", 24]
    command = ["clwe.sh", data / "en", nano / "clwe", "en", nano / "en.npz", *TOY, *small, *TWO]
    succeed(*command)
    module = (nano / "clwe/language-module.pt").read_bytes()
    succeed(*command)
    assert (nano / "clwe/language-module.pt").read_bytes() == module
    for start in ("identical", "unsupervised"):
        fairseq_xl_command(["embeddings", "map", "de.npz", "en.npz", f"{start}.npz", "--start", start])
    assert (nano / "unsupervised.npz").read_bytes() != (nano / "identical.npz").read_bytes()
    given = [nano / "clwe/checkpoint_last.pt", data / "de", nano / "identical.npz", nano / "clwe-de.pt"]
    fairseq_xl_command(["model", "language-module", "from-embeddings", *map(str, given)])
    vectors = read_vectors(nano / "en.npz")
    state = load_plain(nano / "clwe/checkpoint_last.pt")["model"]
    start = load_plain(nano / "clwe/start/checkpoint_last.pt")["model"]
    pieces = XLDictionary.load(data / "en/dict.txt").symbols
    rows = state[language_modules.TOKENS][[pieces.index(symbol) for symbol in vectors.symbols]].numpy()
    scale = rows.std() / vectors.rows.std()
    np.testing.assert_allclose(rows, scale * vectors.rows, atol=1e-5)  # as they were before training
    for name in (
        "encoder.layers.0.ffn.up.weight",
        "encoder.token_embeddings.special.weight",
        "encoder.embeddings.norm.weight",
    ):
        assert not (state[name] == start[name]).all()
    learned = language_modules.read(nano / "clwe-de.pt", "de").state[language_modules.TOKENS]
    assert learned.norm(dim=1).max().item() == pytest.approx(np.linalg.norm(rows, axis=1).max(), rel=1e-3)
    body = nano / "clwe/checkpoint_last.pt"
    wide = [*ONE, "--token-embed-dim", 24]
    succeed("finetune.sh", data / "en", nano / "clwe-nc", files, "en", body, *CLASSIFY_TOY, *wide, *UPDATE)
    tests = f"en={data / 'en'}", f"de={data / 'de'}:{nano / 'clwe-de.pt'}"
    succeed("zero-shot.sh", nano / "clwe-nc/checkpoint_best.pt", nano / "clwe-scores", files, *tests)
    assert json.loads((nano / "clwe-scores/scores.json").read_text())["languages"].keys() == {"en", "de"}
    shutil.copy(nano / "de.npz", nano / "en.npz")
    done = run(*command)
    assert done.returncode == 1 and "was made with other settings" in done.stderr


@pytest.mark.slow
def test_comparison_on_a_corpus_folder(nano, tmp_path, capsys):
    corpus, output = tmp_path / "corpus", tmp_path / "out"
    shutil.copytree(nano / "sample", corpus)
    write_pairs(corpus)
    for task, text in (("wpr", RANKED), ("ui", TAGGED)):
        (corpus / "tasks" / task).mkdir()
        for name in ("train.en", "valid.en", "test.en", "test.de"):
            (corpus / "tasks" / task / f"{name}.tsv").write_text(text, encoding="utf-8")
    small = ["vocabulary=300", "pretraining-seed=3", "--updates", "1"]
    chosen = ["tasks=nc,qam", "seeds=1,2", *small]
    capsys.readouterr()
    compare(corpus, output, *chosen)
    printed = capsys.readouterr().out
    assert printed == (output / "report.md").read_text()
    models = ("tokens", "positions", "noise", "adapters", "joint/de", "disjoint/de")
    for task in ("nc", "qam"):
        assert (output / f"{task}.png").read_bytes().startswith(b"\x89PNG")
        rows = printed.split(f"| {task}: accuracy | en | de | average of de |")[1].splitlines()
        for model, row in zip(models, rows[2:]):
            found = [json.loads((output / f"{model}/{task}-{seed}/scores.json").read_text()) for seed in (1, 2)]
            means = [sum(scores["languages"][code]["accuracy"] for scores in found) / 2 for code in ("en", "de")]
            assert [cell.strip(" |").split(" ")[0] for cell in row.split(" | ")[1:4]] == [
                f"{means[place]:.1f}" for place in (0, 1, 1)
            ]
    for baseline, interval in (("tf-idf, logistic regression", r" \(examples [\d.]+–[\d.]+\)"), ("majority", "")):
        row = rf"^\| {baseline} \| \d+\.\d{interval} \| (\d+\.\d){interval} \| \1 \|$"
        assert re.search(row, printed, re.MULTILINE)
    assert re.search(r"^\| tokens \| \d+\.\d \(seeds [^;]+; examples [\d.]+–[\d.]+\) \| ", printed, re.MULTILINE)
    for name, adapters, positions in (("tokens", 0, False), ("positions", 0, True), ("adapters", 32, True)):
        module = language_modules.read(output / f"modules/{name}/de/language-module.pt")
        assert (module.adapters, module.language_positions) == (adapters, positions)
    noise = {
        name: "embedding_noise': 0.075" in (output / f"classifiers/{name}/nc-1/train.log").read_text()
        for name in ("tokens", "positions", "noise")
    }
    assert noise == {"tokens": False, "positions": False, "noise": True}
    for folder, seed in (("body/en", 3), ("body/joint-de", 3), ("modules/adapters/de", 3), ("joint/de/nc-2", 32)):
        assert f"'seed': {seed}," in (output / folder / "train.log").read_text()
    before = {path: path.stat().st_mtime_ns for path in output.rglob("*.pt")}
    compare(corpus, output, *chosen)
    assert before == {path: path.stat().st_mtime_ns for path in output.rglob("*.pt")}
    assert capsys.readouterr().out == printed
    compare(corpus, output, "tasks=wpr,ui", "seeds=1", "models=tokens,joint", *small)
    other_types = capsys.readouterr().out
    rows = ("wpr: ndcg", "ui: f1", "tokens", "tf-idf", "shared words", "chance")
    for row in (*rows, "dictionary of spans of en", "capitalized words"):
        assert re.search(rf"^\| {row} \| ", other_types, re.MULTILINE)
    assert other_types.count("| tokens | ") == 2 and not re.search(r"\|  \|", other_types)  # no empty cell
    # all languages jointly, and mapped embeddings, are made if they are named
    more = ["tasks=nc", "seeds=1", "skipgram=--buckets 100", *small, "models=tokens", "--only", "multi,clwe,report"]
    compare(corpus, output, *more)
    rows = capsys.readouterr().out.split("| nc: accuracy | en | de | average of de |")[1].splitlines()[3:5]
    for model, row in zip(("multi", "clwe"), rows):
        scores = json.loads((output / f"{model}/nc-1/scores.json").read_text())["languages"]
        found = [cell.split(" ")[0] for cell in row.split(" | ")[1:3]]
        assert found == [f"{scores[code]['accuracy']:.1f}" for code in ("en", "de")]
    assert language_modules.read(output / "body/multi/checkpoint_last.pt").languages == ["en", "de"]
    vectors = language_modules.read(output / "modules/clwe/de/language-module.pt").state[language_modules.TOKENS]
    assert vectors.shape[1] == 128 and vectors[4:-2].norm(dim=1).min() > 0.9 * vectors.norm(dim=1).max()
