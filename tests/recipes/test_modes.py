"""The modes and studies of fine-tuning for every task type: their steps, their tables, and one mode at nano size."""

import gzip
import json
import re

import pytest

from preprocess.readers import xnli
from recipes import report
from recipes.experiment_file import Experiment
from tests.builders import squad
from tests.commands import MAX_POSITIONS
from tests.recipes.unicoder_script import FINETUNE, accuracies, drive, write
from tests.tasks.conftest import write_encoded

pytestmark = pytest.mark.usefixtures("warm")


def test_the_table_of_numbers_of_languages(tmp_path, capsys):
    """U12: each language alone; English and the language, for English the mean over its partners; 3 together."""
    for name, scores in (
        ("translate-train/en", {"en": 70.0}),
        ("translate-train/de", {"de": 60.0}),
        ("translate-train/fr", {"fr": 62.0}),
        ("pairs/en,de", {"en": 71.0, "de": 61.0, "fr": 1.0}),
        ("pairs/en,fr", {"en": 73.0, "de": 1.0, "fr": 63.0}),
        ("pairs/en,ru", {"en": 99.0, "de": 1.0, "fr": 1.0}),
        ("numbers/en,de,fr,ru", {"en": 80.0, "de": 81.0, "fr": 82.0}),
    ):
        write(tmp_path / f"{name}/scores.json", accuracies(**scores))
    report.write(Experiment(FINETUNE, ["others=de,fr,ru", "partners=de,fr", "numbers=4"], tmp_path))
    shown = capsys.readouterr().out
    table = shown[shown.index("| languages of training") :].split("\n\n")[0].splitlines()
    assert table[0] == "| languages of training | en | de | fr | average |" and table[2:] == [
        "| 1, the language itself | 70.0 | 60.0 | 62.0 | 64.0 |",
        "| 2, en and the language | 72.0 | 61.0 | 63.0 | 65.3 |",
        "| 4, together | 80.0 | 81.0 | 82.0 | 81.0 |",
    ]


def test_xnli_is_studied_in_the_papers_languages(tmp_path):
    """U12: 1, 2, 6 and 15 languages, tested in the six of MultiUN; U14 in all 15."""
    file, six = FINETUNE.with_name("xnli.yaml"), "en,ar,es,fr,ru,zh"
    steps = {step.name: " ".join(step.commands[0]) for step in Experiment(file, [], tmp_path).select([])}
    trained = [name.removeprefix("numbers/") for name in steps if name.startswith("numbers/")]
    assert [len(names.split(",")) for names in trained] == [6, 15] and trained[0] == six
    assert set(trained[1].split(",")) == set(xnli.LANGUAGES)
    assert all(f" {names} {six} --config recipes/" in steps[f"numbers/{names}"] for names in trained)
    assert len([name for name in steps if name.startswith("pairs/")]) == 14
    assert len([name for name in steps if name.startswith("one-language/")]) == 15
    partners = ",".join(code for code in xnli.LANGUAGES if code != "en")
    matrix = Experiment(file, [f"partners={partners}"], tmp_path).select(["matrix"])
    assert len(matrix) == 15 and all(
        f" en,{partners} --config recipes/" in " ".join(step.commands[0]) for step in matrix
    )


@pytest.mark.parametrize(
    "kind, suffix, metric", [("ranking", "tsv", "ndcg"), ("tagging", "tsv", "f1"), ("question-answering", "json", "f1")]
)
def test_modes_and_studies_of_every_type(tmp_path, capsys, kind, suffix, metric):
    file = FINETUNE.with_name(f"finetune-{kind}.yaml")
    steps = {step.name: step for step in Experiment(file, ["others=de"], tmp_path).select([])}
    classification = {step.name for step in Experiment(FINETUNE, ["others=de"], tmp_path).select([])}
    assert steps.keys() == classification and "translate-test" in steps
    assert "--valid-langs en,de" in " ".join(steps["cross-lingual"].commands[0])
    (strict,) = Experiment(file, ["others=de", "valid-langs=en"], tmp_path).select(["cross-lingual"])
    assert strict.commands[0][-2:] == ["--valid-langs", "en"]
    trained = [step for step in steps.values() if "finetune.sh" in " ".join(step.commands[0])]
    assert trained and all(f"recipes/finetune.sh {kind} " in " ".join(step.commands[0]) for step in trained)
    assert any(path.endswith(f"/test.de.{suffix}") for path in steps["cross-lingual"].expects)
    score = " ".join(steps["translate-train"].commands[-1])
    assert f"score {kind} " in score and ("--references" in score) == (kind == "question-answering")
    assert f"test.de.{suffix}" in " ".join(steps["translate-train"].commands[1])
    assert f"--task xl_{kind.replace('-', '_')} " in " ".join(steps["translated/de"].commands[0])
    scores = {metric: 50.0, f"{metric}_interval": [40.0, 60.0]}
    write(tmp_path / "matrix/de/scores.json", {"languages": {"en": scores, "de": scores}})
    report.write(Experiment(file, ["others=de"], tmp_path))
    assert "| de | 50.0 (40.0–60.0) | 50.0 (40.0–60.0) | 50.0 |" in capsys.readouterr().out


SMALL = f"--length 32 --max-positions {MAX_POSITIONS} --layers 1 --embed-dim 16 --ffn-dim 32 --heads 2 --cpu"


def write_file(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")


def run_modes(folder, kind, modes, flags=""):
    """Runs modes of a task type in en and de on FOLDER/files at nano size, and returns the output folder."""
    settings = f"--config recipes/unicoder/config/finetune-toy.yaml {SMALL} {flags}"
    values = [f"data={write_encoded(folder)}", f"files={folder}/files", "others=de", f"settings={settings}"]
    drive(FINETUNE.with_name(f"finetune-{kind}.yaml"), *values, output=folder / "out", only=modes)
    return folder / "out"


@pytest.mark.slow
def test_modes_of_tagging_at_nano_size(tmp_path, capsys):
    """translate-train scores all models together; translate-test scores against the tags of the translated file."""
    for name in ("train.en", "valid.en", "test.en", "valid.de", "test.de", "translate_train/train.de"):
        write_file(tmp_path / f"files/{name}.tsv", "the\tO\nriver\tB-X\n\n")
    write_file(tmp_path / "files/translate_test/de/test.en.tsv", "a\tO\nlong\tO\nriver\tB-X\n\n")
    out = run_modes(tmp_path, "tagging", ["translate-train", "translate-test", "report"])
    shown = capsys.readouterr().out
    for mode in ("translate-train", "translate-test"):
        assert re.search(rf"^\| {mode} \| \d+\.\d \(", shown, re.MULTILINE)
        scores = json.loads((out / mode / "scores.json").read_text())
        assert set(scores["languages"]) == {"en", "de"} and scores["missing"] == []
    predicted = (out / "translate-test/predictions/test.de.tsv").read_text()
    assert [line.split("\t")[:2] for line in predicted.splitlines()] == [
        ["a", "O"],
        ["long", "O"],
        ["river", "B-X"],
        [""],
    ]


@pytest.mark.slow
def test_modes_of_ranking_at_nano_size(tmp_path, capsys):
    for name in ("train.en", "valid.en", "test.en", "valid.de", "test.de", "translate_train/train.de"):
        write_file(tmp_path / f"files/{name}.tsv", "1\triver\tthe river\n0\triver\twater\n")
    write_file(tmp_path / "files/translate_test/de/test.en.tsv", "3\tstone\ta stone\n0\tstone\twater\n")
    out = run_modes(tmp_path, "ranking", ["multi-language", "translate-test", "report"])
    shown = capsys.readouterr().out
    for mode in ("multi-language", "translate-test"):
        assert re.search(rf"^\| {mode} \| \d+\.\d \(", shown, re.MULTILINE)
        assert set(json.loads((out / mode / "scores.json").read_text())["languages"]) == {"en", "de"}
    predicted = (out / "translate-test/predictions/test.de.tsv").read_text().splitlines()
    assert [line.split("\t")[:3] for line in predicted] == [["1", "stone", "3"], ["2", "stone", "0"]]


@pytest.mark.slow
def test_translate_test_of_question_answering_at_nano_size(tmp_path):
    """The predictions are scored against the answers of the translated file: contexts of one word, so all are exact."""
    for name, context in (
        ("train.en", "a x"),
        ("valid.en", "a x"),
        ("test.en", "y"),
        ("translate_test/de/test.en", "z"),
    ):
        write_file(tmp_path / f"files/{name}.json", squad((context, ("1", "where", context[-1]))))
    translated = tmp_path / "files/translate_test/de/test.en.json"  # task files may be compressed
    translated.with_name("test.en.json.gz").write_bytes(gzip.compress(translated.read_bytes()))
    translated.unlink()
    out = run_modes(tmp_path, "question-answering", ["translate-test"], "--question-length 8 --answer-length 4")
    scores = json.loads((out / "translate-test/scores.json").read_text())["languages"]
    assert [scores[code]["exact_match"] for code in ("en", "de")] == [100, 100]
    predicted = [
        json.loads((out / f"translate-test/predictions/test.{code}.json").read_text()) for code in ("en", "de")
    ]
    assert predicted == [{"1": "y"}, {"1": "z"}]
