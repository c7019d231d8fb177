"""Scores of an experiment that runs in parts, collected in one JSON file."""

import json

import pytest

from fairseq_xl.errors import UserError
from recipes import experiment, report

EXPERIMENT = """
values: {models: {xlm: {name: XLM}, veco: {name: VECO}}, seeds: [1, 2], updates: 5}
steps:
  train: {for: {model: models}, run: "touch {output}/{model}/weights --updates {updates}"}
  test: {for: {model: models, seed: seeds}, folder: "{model}-{seed}", stdout: scores.json, run: "cat {model}.{seed}"}
claims: {1: {says: VECO > XLM, steps: [test]}}
report:
  - table: score
    columns: [en]
    rows: [{for: {model: models}, name: "{model.name}", scores: "{model}-{seed}/scores.json", key: "{column}"}]
  - verdict: claim 1
    claim: 1
    columns: [score]
    greater: [[VECO, XLM]]
last line: "run=[claims.json run]"
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    """An experiment whose tests print a file's content. It is in a folder `recipes`, as configurations are."""
    monkeypatch.setattr("recipes.experiment_file.ROOT", tmp_path)
    monkeypatch.setattr("recipes.experiment.ROOT", tmp_path)
    path = tmp_path / "recipes/experiment.yaml"
    path.parent.mkdir()
    path.write_text(EXPERIMENT.replace("cat {model}.{seed}", "cat recipes/{model}.{seed}"))
    for model, scores in (("xlm", (1, 2)), ("veco", (5, 8))):
        for seed, score in enumerate(scores, start=1):
            (path.parent / f"{model}.{seed}").write_text(json.dumps({"en": score}))
    return path


def run_and_save(file, machine, *only):
    """Runs tests in a folder of their own, as on another machine, and adds their scores to the file."""
    folder = file.parent.parent / machine
    experiment.main([str(file), "--output", str(folder), "--only", ",".join(only)])
    report.main([str(file), str(folder), "--save", str(file.parent / "kept.json")])


def test_parts_from_several_machines_make_one_report(file, capsys):
    run_and_save(file, "one", "test/xlm")
    assert capsys.readouterr().out.endswith("run=0\n")
    run_and_save(file, "two", "test/veco")
    capsys.readouterr()
    report.main([str(file), str(file.parent / "kept.json")])
    text = capsys.readouterr().out
    assert "| XLM | 1.5 (" in text and "| VECO | 6.5 (" in text and "| VECO > XLM | score | +5.0 (" in text
    assert text.endswith("run=1\n")


def test_scores_of_other_settings_are_not_mixed(file):
    run_and_save(file, "one", "test/xlm")
    kept = (file.parent / "kept.json").read_text()
    (file.parent / "xlm.2").write_text('{"en": 3}')  # an input in `recipes`, as a configuration is
    with pytest.raises(UserError, match=r"kept.json: its step test/xlm/2 was run with other settings than .* has now"):
        run_and_save(file, "two", "test/veco")
    assert (file.parent / "kept.json").read_text() == kept
    run_and_save(file, "two", "test/xlm", "test/veco")
    assert json.loads((file.parent / "kept.json").read_text())["xlm-2"] == {"en": 3}
