"""Recipes that look into models without fine-tuning them, at nano size: probing, word embeddings, low-resource text."""

import json
import re
from contextlib import nullcontext
from pathlib import Path

import pytest

from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.probing_tasks import GROUPS
from preprocess.config import read_config
from recipes import concatenated, corpus, experiment, experiment_file, low_resource, unpaired, word_pairs
from tests.tasks.tiny_text import write

pytestmark = pytest.mark.usefixtures("warm")
RECIPES = Path(__file__).resolve().parents[2] / "recipes"


@pytest.fixture(scope="module")
def sample(tmp_path_factory, copy_sample):
    return copy_sample(tmp_path_factory.mktemp("probing") / "sample")


def write_probes(folder):
    """Files in the formats and folders in which the tasks are distributed."""
    for split, count in (("train", 12), ("dev", 6)):
        (folder / f"WiC_dataset/{split}").mkdir(parents=True)
        lines = [f"plan\tN\t1-{1 + number % 2}\tthe plan is new\tthis old plan" for number in range(count)]
        write(folder / f"WiC_dataset/{split}/{split}.data.txt", lines)
        write(folder / f"WiC_dataset/{split}/{split}.gold.txt", ["TF"[number % 2] for number in range(count)])
    (folder / "SCWS").mkdir()
    contexts = ["the <b> plan </b> is new", "this old <b> street </b>", "a <b> letter </b> from the city"]
    rows = [(1, 2, 5.5), (0, 2, 2.5), (0, 1, 9.0)]
    line = "{}\tx\tn\ty\tn\t{}\t{}\t{}\t1.0"
    write(
        folder / "SCWS/ratings.txt", [line.format(n, contexts[i], contexts[j], r) for n, (i, j, r) in enumerate(rows)]
    )
    names = [name for constructions in GROUPS.values() for name in constructions]
    pairs = [f"{name}\tsing\tthe plan b\tthe plan c" for name in names]  # they differ in one piece
    write(folder / "marvin_linzen_dataset.tsv", [*pairs, "simple_agrmt\tsing\tit is\tit was not"])


@pytest.mark.slow
def test_bodies_of_other_languages_are_probed_in_english(sample, tmp_path, capsys):
    """At the paper's values but for the sizes: English is among the languages, and text is cut."""
    write_probes(tmp_path / "probes")
    toy = experiment_file.Experiment(RECIPES / "monotrans/probing-toy.yaml").values["pretraining"]
    values = [f"corpus={sample}", f"probes={tmp_path / 'probes'}", "sources=en,de", "vocabulary=300", "--updates", "1"]
    values += ["sentences=--sentences 150", f"pretraining={toy}"]
    experiment.main([str(RECIPES / "monotrans/probing.yaml"), *values, "--output", str(tmp_path / "out")])
    shown = capsys.readouterr().out
    for model in ("de", "en", "English", "random"):
        for task in ("wic", "scws", "minimal-pairs"):
            assert json.loads((tmp_path / f"out/{model}/{task}/scores.json").read_text())["probe"] == task
    value = r"-?[\d.]+ \(-?[\d.]+–-?[\d.]+\)"
    assert "| Table 4 | English | en | de | random | average of en, de |" in shown
    for name in ("WiC", "WiC, states of the words", "SCWS", "agreement", "reflexives"):
        assert re.search(rf"^\| {name} \|( {value} \|){{4}} -?[\d.]+ \|$", shown, re.M), name
    assert re.search(r"^\| paper, WiC \(dev\) \(.*table 4\) \| 59.1 \| 58.2 \| 58.0 \|  \|  \|$", shown, re.M)
    assert "\n| agreement, simple | 1 | 2 |" in shown and "\n| reflexives, simple | 1 | 1 |" in shown
    assert re.search(rf"^\| agreement, short VP coordination \| {value} \| {value} \|$", shown, re.M)
    assert re.search(r"^\| paper: agreement, simple \(.*table 11\) \| 91.2 \| 76.5 \|$", shown, re.M)
    lines = (tmp_path / "out/descriptions/en.train.en").read_text().splitlines()
    assert 140 < sum(map(bool, lines)) < 170


def test_sentences_are_taken_in_evenly_spaced_pages(tmp_path):
    (tmp_path / "mono").mkdir()
    pages = [[f"{page} {line}" for line in range(3)] for page in range(40)]
    write(tmp_path / "mono/train.en", "\n\n".join("\n".join(page) for page in pages).split("\n"))
    write(tmp_path / "mono/valid.en", ["x"])
    arguments = [str(tmp_path), f"en={tmp_path / 'out/en.yaml'}", "--langs", "en", "--monolingual", "--sentences"]
    corpus.main([*arguments, "30"])
    (file,) = read_config(tmp_path / "out/en.yaml")[0].folders[0].splits[0].sides[0].files
    text = [page.split("\n") for page in Path(file).read_text().strip().split("\n\n")]
    assert text == pages[::4] and Path(file) == tmp_path / "out/en.train.en"
    with pytest.raises(UserError, match="train.en has 120 sentences, --sentences needs 121"):
        corpus.main([*arguments, "121"])


def test_a_probing_task_needs_its_own_files_only(tmp_path):
    write(tmp_path / "marvin_linzen_dataset.tsv", ["a\tb"])
    for tasks in ("minimal-pairs", "minimal-pairs,scws"):
        values = [f"corpus={tmp_path}", f"probes={tmp_path}", f"tasks={tasks}"]
        steps = experiment_file.Experiment(RECIPES / "monotrans/probing.yaml", values).select([])
        refused = pytest.raises(UserError, match="ratings.txt: no such file") if "scws" in tasks else nullcontext()
        with refused:
            experiment_file.check_files(steps)


def test_sentences_replace_no_text_beside_their_description(tmp_path, capsys):
    (tmp_path / "mono").mkdir()
    for text in ("mono/train.en", "train.en"):
        write(tmp_path / text, ["one", "", "two"])
    for name in ("mono/small.yaml", "small.yaml", "small"):
        corpus.main([str(tmp_path), str(tmp_path / name), "--monolingual", "--sentences", "1"])
        assert {(tmp_path / text).read_text() for text in ("mono/train.en", "train.en")} == {"one\n\ntwo\n"}
        written = f"{tmp_path / name}".removesuffix(".yaml") + ".train.en"
        assert Path(written).read_text().strip() == "one" and f"{written}: 1 of 2 sentences" in capsys.readouterr().err


@pytest.mark.parametrize("module", [low_resource, unpaired])
def test_a_corpus_is_not_made_over_its_text(module, tmp_path):
    with pytest.raises(UserError, match=f"{tmp_path}: the text of the corpus would be replaced"):
        module.main([str(tmp_path), str(tmp_path), "--langs", "en,de"])


@pytest.mark.slow
def test_words_and_their_translations_are_compared(sample, tmp_path, capsys):
    words = {"en": ["House", "Garden", "Old street", "House", "House"], "de": ["Haus", "Garten", "Weg", "Bau", "Haus"]}
    for code, lines in words.items():
        with open(sample / f"bitext/train.en-de.{code}", "a", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))
    values = [f"corpus={sample}", "vocabulary=300", "--updates", "1", "min-count="]
    values.append("skipgram=--dim 128 --epochs 1 --buckets 100")
    write(tmp_path / "data.txt", ["house\tHaus", "street\tGarten"])
    write(tmp_path / "gold.txt", ["4", "0.5"])
    rated = f"similarity=en-de={tmp_path}/data.txt:{tmp_path}/gold.txt"
    experiment.main([str(RECIPES / "xlm/word-embeddings.yaml"), *values, rated, "--output", str(tmp_path / "out")])
    pairs = (tmp_path / "out/dictionary/en-de.txt").read_text(encoding="utf-8")
    assert pairs.startswith("House\tHaus\n") and "Garden\tGarten\n" in pairs and "Bau" not in pairs
    shown = capsys.readouterr().out
    starts = ("without a dictionary", "from identical pieces")
    skipgrams = ["skip-gram of the concatenation", *(f"skip-gram mapped {start} (VecMap)" for start in starts)]
    for model in ("XLM (MLM)", "random weights", *skipgrams):
        found = re.search(rf"^\| {re.escape(model)} \| (-?[\d.]+) \(.*\) \| [\d.]+ \(.*\) \|$", shown, re.MULTILINE)
        assert found and re.search(rf"^\| {re.escape(model)}, random pairs( \| -?[\d.]+){{3}} \|$", shown, re.M), model
    scores = json.loads((tmp_path / "out/scores/mlm/scores.json").read_text())
    assert scores["similarity"]["en-de"]["n"] == 2


@pytest.mark.slow
def test_little_text_is_modeled_alone_and_with_other_languages(sample, tmp_path, capsys):
    values = [f"corpus={sample}", "vocabulary=--vocabulary 400", "--updates", "2", "share=0.25"]
    experiment.main([str(RECIPES / "xlm/low-resource-toy.yaml"), *values, "--output", str(tmp_path / "out")])
    shown = capsys.readouterr().out
    for name in (r"es", r"es \+ fr", r"es \+ en", r"es \+ fr \+ en", "bigram model, es"):
        assert re.search(rf"^\| {name} \| [\d.]+ \| [\d.]+ \|$", shown, re.MULTILINE), name
    lines = {code: (sample / f"mono/train.{code}").read_text().splitlines() for code in ("es",)}
    kept = (tmp_path / "out/text/mono/train.es").read_text().splitlines()
    assert {*kept} <= {*lines["es"]} and 0.15 < len(kept) / len(lines["es"]) < 0.35
    log = (tmp_path / "out/related/pretrained-1/train.log").read_text()
    assert '"valid_clm_es_loss"' in log and '"valid_clm_fr_loss"' in log and '"valid_clm_en_loss"' not in log


def test_a_pair_of_words_is_the_most_frequent_translation_of_both(tmp_path):
    (tmp_path / "bitext").mkdir()
    lines = ["Name Name", *["Name Bezeichnung"] * 2, "Title Titel", *["Heading Titel"] * 2, "2 Zwei"]
    lines += ["End Ende", "हिन्दी Hindi", "F1 F1", "a_b c"]
    for place, code in enumerate(("en", "de")):
        write(tmp_path / f"bitext/train.en-de.{code}", [f" {line.split()[place]}" for line in lines] + ["two words"])
    expected = ["Name Bezeichnung", "Heading Titel", "End Ende", "हिन्दी Hindi", "F1 F1", "a_b c"]
    assert [" ".join(pair) for pair in word_pairs.word_pairs(tmp_path, "en-de")] == expected
    write(tmp_path / "bitext/train.en-de.de", ["zwei Wörter"] * (len(lines) + 1))
    with pytest.raises(UserError, match="no aligned lines of en-de are one word in both languages"):
        word_pairs.main([str(tmp_path), str(tmp_path / "out"), "--pairs", "en-de"])
    (tmp_path / "bitext/train.en-de.de").write_bytes(b"Wort\nW\xf6rter\n")
    with pytest.raises(UserError, match="train.en-de.de, line 2: not UTF-8, it has the byte 0xf6"):
        word_pairs.word_pairs(tmp_path, "en-de")
    with pytest.raises(UserError, match="--pairs en: expected a pair such as en-de"):
        word_pairs.word_pairs(tmp_path, "en")
    write(tmp_path / "bitext/train.en-de.de", ["Wort"])
    with pytest.raises(UserError, match="train.en-de.en has 12 lines, .*train.en-de.de has 1"):
        word_pairs.word_pairs(tmp_path, "en-de")


def test_shares_of_text(sample, tmp_path):
    for share, message in (("0", "--share 0.0: more than 0"), ("2", "--share 2.0: expected a share above 0, up to 1")):
        with pytest.raises(UserError, match=message):
            low_resource.main([str(sample), str(tmp_path), "--langs", "es,fr", "--share", share])
    with pytest.raises(UserError, match=r"--share 0.0001: none of the \d+ pages of .*train.es is left"):
        low_resource.main([str(sample), str(tmp_path), "--langs", "es,fr", "--share", "0.0001"])
    low_resource.main([str(sample), str(tmp_path), "--langs", "es,fr", "--share", "1"])
    (tmp_path / "mono/valid.es").write_text("a\nb\n\nc\n\nd\n")
    assert low_resource.evaluation_text(tmp_path, "es")["test"] == low_resource.pages(sample / "mono/test.es")
    (tmp_path / "mono/test.es").unlink()
    assert low_resource.evaluation_text(tmp_path, "es") == {"valid": [["a", "b"], ["d"]], "test": [["c"]]}
    low_resource.main([str(sample), str(tmp_path), "--langs", "es,fr", "--share", "1", "--codes", "50"])
    config, problems = read_config(tmp_path / "corpus.yaml")
    assert not problems and (config.vocabulary.model, config.vocabulary.codes) == ("fastbpe", 50)
    kept, every = (folder / "mono/train.es" for folder in (tmp_path, sample))
    assert kept.read_text().split("\n\n") == every.read_text().split("\n\n")


def test_a_concatenation_is_one_language(sample, tmp_path):
    concatenated.main([str(sample), str(tmp_path / "mul.yaml"), "--langs", "en,de"])
    config, problems = read_config(tmp_path / "mul.yaml")
    assert config.languages == ("mul",) and not problems
    assert config.files() == [f"{sample}/mono/train.{code}" for code in ("en", "de")]
