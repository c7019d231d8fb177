"""Experiments that include others, steps that are chosen by claims, and limits of the time."""

import json

import pytest
import yaml

from fairseq_xl.errors import UserError
from recipes import corpus, experiment
from recipes.experiment_file import Experiment
from tests.recipes.experiment_builders import file, run, steps  # noqa: F401

INCLUDED = """
values: {seed: 1, seeds: [1, 2], data: "{output}/data", flag: ""}
steps:
  text: {folder: "{data}", run: "touch {folder}/text"}
  train: {for: {s: seeds}, only if needed: true, run: "cp {data}/text {folder}/weights"}
  test: {for: {s: seeds}, run: "cp {output}/train/{s}/weights {folder}/{seed}{flag:words}"}
"""


INCLUDING = """
values: {seeds: [3, 4], flag: x}
include:
  part: {file: part.yaml, for: {seed: seeds}, values: {seed: "{seed}", seeds: 1, data: "{output}/shared"}}
steps:
  start: {run: "touch {folder}/a"}
  end: {run: "cp {output}/part/3/test/1/3 {folder}/a"}
claims:
  1: {says: a > b, steps: [start]}
  2: {says: "b > {flag}", steps: ["part/{seeds:each}/test", end]}
"""


@pytest.fixture
def including(tmp_path):
    (tmp_path / "part.yaml").write_text(INCLUDED)
    (tmp_path / "all.yaml").write_text(INCLUDING)
    return tmp_path / "all.yaml"


def test_an_experiment_includes_others_for_each_seed(including):
    """Their steps have names of their own; those with the same folder are one step; values replace theirs."""
    out = including.parent / "out"
    assert steps(including) == {
        "start": [f"touch {out}/start/a"],
        "part/3/text": [f"touch {out}/shared/text"],
        "part/3/train/1": [f"cp {out}/shared/text {out}/part/3/train/1/weights"],
        "part/3/test/1": [f"cp {out}/part/3/train/1/weights {out}/part/3/test/1/3"],
        "end": [f"cp {out}/part/3/test/1/3 {out}/end/a"],
        "part/4/train/1": [f"cp {out}/shared/text {out}/part/4/train/1/weights"],
        "part/4/test/1": [f"cp {out}/part/4/train/1/weights {out}/part/4/test/1/4"],
    }
    run(including, "--jobs", "2")
    assert all((out / name).is_file() for name in ("part/3/test/1/3", "part/4/test/1/4", "end/a"))


def test_steps_are_chosen_by_their_claims(including, capsys):
    """Without --claims those of all claims run: no step that none of them needs."""
    including.write_text(INCLUDING.replace("steps:\n", "steps:\n  other: {run: 'false'}\n", 1))
    for claims, expected in (
        ("1", {"start"}),
        ("2", {"part", "shared", "end"}),
        ("", {"start", "part", "shared", "end"}),
    ):
        output = f"out{claims}"
        run(including, *(["--claims", claims] if claims else []), output=output)
        found = {path.name for path in (including.parent / output).iterdir() if path.is_dir()}
        assert found == expected
    state = json.loads((including.parent / "out2/claims.json").read_text())
    assert (state["claims"], state["run"]) == (2, 0)  # the report has no tests of them
    assert (
        state["2"] == {"says": "b > x", "steps": 6, "finished": 6, "tests": {}, "controls": {}, "missing": []}
        and state["1"]["finished"] == 0
    )


@pytest.mark.parametrize(
    "old, new, words",
    [
        ("file: part.yaml, ", "", "include part: no file"),
        ("file: part.yaml", "files: part.yaml", "include part: unknown key files"),
        ('seed: "{seed}", ', "sed: 1, ", "sed=1: expected name=value, with one of the names seed, seeds"),
        (
            "for: {seed: seeds}",
            "folder: part, for: {seed: seeds}",
            "the steps part/3/test/1 and part/4/test/1 have the same folder",
        ),
        ("says: a > b", "say: a > b", "claim 1: expected says and steps"),
        ("{says: a > b, steps: [start]}", "a > b", "claim 1: expected says and steps"),
        ('start: {run: "touch {folder}/a"}', "start: touch", "step start: expected keys among expects, folder"),
    ],
)
def test_a_wrong_include_or_claim_is_one_sentence(including, old, new, words):
    including.write_text(INCLUDING.replace(old, new, 1))
    with pytest.raises(UserError, match=words):
        steps(including)


def test_a_claim_may_name_steps_that_the_values_leave_out(including):
    """For instance those of one language. At least one step must be left."""
    including.write_text(INCLUDING.replace('["part/{seeds:each}/test", end]', '["part/3/test", "part/4/test"]'))
    names = [step.name for step in Experiment(including, ["seeds=4"]).select_by_claims(["2"])]
    assert names == ["part/4/text", "part/4/train/1", "part/4/test/1"]
    including.write_text(INCLUDING.replace('["part/{seeds:each}/test", end]', "[part/5]"))
    with pytest.raises(UserError, match="claim 2: there is no step part/5"):
        run(including, "--claims", "2")


def test_unknown_claims_are_one_sentence(including, file):
    with pytest.raises(UserError, match="--claims 3: there is no such claim; choose from 1, 2"):
        run(including, "--claims", "3")
    with pytest.raises(UserError, match="this experiment has none"):
        run(file, "--claims", "1")
    with pytest.raises(UserError, match="give --only or --claims, not both"):
        run(including, "--claims", "1", "--only", "end")


def test_a_limit_stops_the_run_which_then_goes_on(tmp_path, capsys):
    file = tmp_path / "a.yaml"
    wait = "bash -c 'mkdir {folder}/begun 2>/dev/null && exec sleep 60; touch {folder}/done'"
    file.write_text(f'steps: {{a: {{run: "{wait}"}}, b: {{run: "true"}}}}')
    with pytest.raises(SystemExit) as stopped:
        run(file, "--limit", "0.02")
    assert stopped.value.code == experiment.STOPPED and not (tmp_path / "out/b").exists()
    assert capsys.readouterr().err.endswith("stopped: run the same command to continue\n")
    run(file, "--limit", "5")
    assert (tmp_path / "out/a/done").exists() and (tmp_path / "out/b").exists()


def test_a_corpus_is_described_by_its_folder(tmp_path):
    folder = tmp_path / "mine"
    for name in ("mono/train.en", "mono/train.de", "bitext/train.en-de.en", "bitext/train.en-de.de"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    found = corpus.description(folder, ["en", "de"], 300, False, None)
    assert found["vocabulary"] == {"model": "unigram", "size": 300, "alpha": 0.5}
    assert found["bitext"]["en-de"]["test"] == f"{folder}/bitext/test.en-de" and "de" in found["monolingual"]
    alone = corpus.description(folder, ["de"], 300, True, "identity")
    assert "bitext" not in alone and alone["vocabulary"]["normalization"] == "identity"
    with pytest.raises(UserError, match=r"mine is not a corpus of en,de,xx: it has no mono/train.xx"):
        corpus.description(folder, ["en", "de", "xx"], 300, False, None)
    with pytest.raises(UserError, match=r"has no mono/train.fr"):
        corpus.description(folder, ["de", "fr"], 300, True, None)
    described = [f"{codes}{tmp_path}/{name}.yaml" for codes, name in (("de=", "de"), ("en,de=", "pair"), ("", "all"))]
    corpus.main([str(folder), *described, "--langs", "en,de", "--monolingual"])
    languages = {
        name: yaml.safe_load((tmp_path / f"{name}.yaml").read_text())["languages"] for name in ("de", "pair", "all")
    }
    assert languages == {"de": ["de"], "pair": ["en", "de"], "all": ["en", "de"]}
    with pytest.raises(UserError, match="no such corpus folder"):
        corpus.main([str(tmp_path / "absent")])
