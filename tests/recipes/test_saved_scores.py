"""Scores of an experiment that runs in parts, collected in one JSON file."""

import json

import pytest

from fairseq_xl.errors import UserError
from recipes import experiment, report, saved_scores
from recipes.experiment_file import Experiment

EXPERIMENT = """
values: {models: {xlm: {name: XLM}, veco: {name: VECO}}, seeds: [1, 2], data: "{output}/weights"}
steps:
  train: {folder: "{data}", run: "cp recipes/weights {folder}/weights"}
  test:
    for: {model: models, seed: seeds}
    folder: "{model}-{seed}"
    stdout: scores.json
    reads: ["{data}/weights"]
    run: "cat recipes/{model}.{seed}"
claims: {1: {says: VECO > XLM, steps: [test]}}
report:
  - table: score
    columns: [en]
    rows: [{for: {model: models}, name: "{model.name}", scores: "{model}-{seed}/scores.json", key: "{column}"}]
  - tests: claim 1
    claim: 1
    columns: [score]
    greater: [[VECO, XLM]]
last line: "run=[claims.json run]"
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    """An experiment whose tests print a file's content. The files are in a folder `recipes`, as configurations are."""
    monkeypatch.setattr("recipes.experiment_file.ROOT", tmp_path)
    monkeypatch.setattr("recipes.experiment.ROOT", tmp_path)
    path = tmp_path / "recipes/experiment.yaml"
    path.parent.mkdir()
    path.write_text(EXPERIMENT)
    (path.parent / "weights").write_text("1")
    for model, scores in (("xlm", (1, 2)), ("veco", (5, 8))):
        for seed, score in enumerate(scores, start=1):
            (path.parent / f"{model}.{seed}").write_text(json.dumps({"en": score}))
    return path


def run_and_save(file, machine, *only, values=()):
    """Runs steps in a folder of their own, as on another machine, and adds their scores to the file."""
    folder = file.parent.parent / machine
    experiment.main([str(file), *values, "--output", str(folder), "--only", ",".join(only)])
    report.main([str(file), *values, str(folder), "--save", str(file.parent / "kept.json")])


def kept(file):
    return json.loads((file.parent / "kept.json").read_text())


def test_parts_from_several_machines_make_one_report(file, capsys):
    run_and_save(file, "one", "test/xlm")
    assert capsys.readouterr().out.endswith("run=0\n")
    run_and_save(file, "two", "test/veco")
    capsys.readouterr()
    report.main([str(file), str(file.parent / "kept.json")])
    text = capsys.readouterr().out
    assert "| XLM | 1.5 (" in text and "| VECO | 6.5 (" in text and "| VECO > XLM | score | +5.0 (" in text
    assert text.endswith("run=1\n")


@pytest.mark.parametrize("changed", ["xlm.2", "weights"])
def test_scores_of_other_settings_are_not_mixed(file, changed):
    """Also if the settings of a step before have changed."""
    run_and_save(file, "one", "test/xlm")
    before = kept(file)
    (file.parent / changed).write_text('{"en": 3}')
    words = "kept.json: the step in xlm-[12], or one that it needs, was run with other settings than .* has"
    with pytest.raises(UserError, match=words):
        run_and_save(file, "two", "test/veco")
    assert kept(file) == before
    run_and_save(file, "two", "test/xlm", "test/veco")
    assert kept(file)["xlm-2"] == {"en": 3 if changed == "xlm.2" else 2}


def test_a_report_of_other_settings_is_refused(file, capsys):
    """Its rows would have the names of other models than the kept scores."""
    run_and_save(file, "one", "test")
    page = file.parent.parent / "page"
    for words in ("seeds=2", "models=veco"):  # some of the kept scores
        report.main([str(file), str(file.parent / "kept.json"), words])
    (file.parent / "xlm.2").write_text('{"en": 3}')
    words = (
        "kept.json: the step in xlm-2, or one that it needs, was run with other settings .*: give the values of the run"
    )
    with pytest.raises(UserError, match=words):
        report.main([str(file), str(file.parent / "kept.json"), "--output", str(page)])
    assert not page.exists()


def test_the_report_of_a_run_with_few_updates(file, capsys):
    """--updates is one of the settings of a run."""
    folder, numbers = file.parent.parent / "one", ["--updates", "3"]
    (file.parent / "experiment.yaml").write_text(
        EXPERIMENT.replace(
            '"cp recipes/weights {folder}/weights"', """"bash -c 'echo $2 > $0/weights' {folder} {updates:words}\""""
        )
    )
    experiment.main([str(file), "--output", str(folder), *numbers])
    assert capsys.readouterr().out.endswith("run=1\n") and (folder / "weights/weights").read_text() == "3\n"
    for flags, run in ((numbers, 1), ([], 0), (["--updates", "4"], 0)):
        report.main([str(file), str(folder), *flags])
        assert capsys.readouterr().out.endswith(f"run={run}\n"), flags
    kept = str(file.parent / "kept.json")
    with pytest.raises(UserError, match="--save .*: give the values of the run, or run the step again"):
        report.main([str(file), str(folder), "--save", kept])
    report.main([str(file), str(folder), "--save", kept, *numbers])
    report.main([str(file), kept, *numbers])


def test_steps_of_other_settings_do_not_count_as_run(file, capsys):
    run_and_save(file, "one", "test")
    assert capsys.readouterr().out.endswith("run=1\n")
    (file.parent / "xlm.2").write_text('{"en": 3}')
    report.main([str(file), str(file.parent.parent / "one")])
    assert capsys.readouterr().out.endswith("run=0\n")
    state = json.loads((file.parent.parent / "one/claims.json").read_text())
    assert (state["1"]["steps"], state["1"]["finished"]) == (5, 4)


def test_a_test_of_fewer_seeds_does_not_replace_another(file):
    run_and_save(file, "one", "test")
    before = kept(file)
    assert before["claim 1 | VECO > XLM | score"]["differences"] == [4, 6]
    run_and_save(file, "one", "test", values=["seeds=1"])
    assert kept(file) == before


def test_a_step_of_several_included_experiments_is_finished_for_each(file):
    """It has the name of the first that has it: another one with other values."""
    outer = file.parent / "outer.yaml"
    outer.write_text(
        "values: {seeds: [1, 2]}\nsteps: {}\n"
        "include:\n"
        "  part:\n"
        "    file: experiment.yaml\n"
        "    for: {seed: seeds}\n"
        '    values: {seeds: "{seed}", data: "{output}/shared"}\n'
        'claims: {1: {says: b > a, steps: ["part/{seeds:each}/test"]}}\n'
    )
    run_and_save(outer, "one", "part")
    for seeds in ("1", "2", "1,2"):
        made = Experiment(outer, [f"seeds={seeds}"])
        state = saved_scores.state_of_claims(made, file.parent / "kept.json", {}, {}, {})["1"]
        assert state["finished"] == state["steps"] == 1 + 2 * len(seeds.split(","))
