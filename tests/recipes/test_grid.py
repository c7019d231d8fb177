"""The grid of fine-tuning: every point, the best of them, and one test; two points at nano size."""

import json

import pytest

from fairseq_xl.errors import UserError
from fairseq_xl.objectives import OBJECTIVES, load_all
from recipes import best_of_grid, experiment
from recipes.experiment_file import Experiment
from tests.commands import MAX_POSITIONS
from tests.recipes.answers import TAGGED
from tests.recipes.configurations import RECIPES
from tests.tasks.conftest import write_encoded

pytestmark = pytest.mark.usefixtures("warm")
SWEEP = RECIPES / "veco/sweep.yaml"


def point(root, name, score, checkpoint="checkpoint_best.pt"):
    for folder in (root / "validation" / name, root / "grid" / name):
        folder.mkdir(parents=True)
    (root / f"validation/{name}/scores.json").write_text(json.dumps({"f1": score}))
    (root / f"grid/{name}/{checkpoint}").write_text(name)


def test_the_best_point_is_linked(tmp_path):
    """Of equal ones the first; a point of another grid in the same folder does not count."""
    for name, score in (("1e-5-3", 50.0), ("1e-5-5", 70.0), ("2e-5-3", 70.0), ("2e-5-5", 60.0), ("9e-5-3", 99.0)):
        point(tmp_path, name, score, "checkpoint_last.pt" if name == "1e-5-5" else "checkpoint_best.pt")
    arguments = tmp_path / "validation", "f1", tmp_path / "best", ["1e-5,2e-5", "3,5"]
    for _ in range(2):
        assert best_of_grid.choose(*arguments) == "1e-5-5"
    assert (tmp_path / "best/checkpoint_best.pt").read_text() == "1e-5-5"
    found = json.loads((tmp_path / "best/best.json").read_text())
    assert found["chosen"] == "1e-5-5" and found["validation"]["2e-5-5"] == 60.0 and "9e-5-3" not in found["validation"]
    tmp_path.rename(tmp_path.parent / "moved")
    assert (tmp_path.parent / "moved/best/checkpoint_best.pt").read_text() == "1e-5-5"


def test_an_incomplete_point_is_one_sentence(tmp_path):
    point(tmp_path, "1e-5", 50.0, "none.pt")
    for metric, told in (("f1", "grid/1e-5 has no checkpoint_best.pt and no "), ("ndcg", "scores.json has no ndcg")):
        with pytest.raises(UserError, match=told):
            best_of_grid.choose(tmp_path / "validation", metric, tmp_path / "best", ["1e-5"])
    assert not (tmp_path / "best").exists()


def test_the_papers_grid_is_every_point(tmp_path):
    steps = {step.name: step for step in Experiment(SWEEP, (), tmp_path).select([])}
    grid = {name for name in steps if name.startswith("grid/")}
    expected = {
        (rate, epochs, batch)
        for rate in ("1e-5", "2e-5", "3e-5")
        for epochs in "3 5 10".split()
        for batch in "16 32 64".split()
    }  # V9
    assert grid == {"grid/" + "/".join(each) for each in expected} and len(grid) == 27
    command = " ".join(steps["grid/3e-5/10/64"].commands[0])
    assert "--lr 3e-5 --max-epoch 10 --batch-size 64" in command and "recipes/veco/config/finetune.yaml" in command
    assert len([need for need in steps["best"].required_steps if need.name.startswith("validation/")]) == 27
    assert [need.name for need in steps["test"].required_steps] == ["best"]
    unlabeled = Experiment(SWEEP, (), tmp_path).select(["test"])  # its files need no labels
    assert len(unlabeled) == 56 and "score" not in {step.name for step in unlabeled}


def test_two_points_are_trained_and_the_better_one_is_tested(tmp_path, capsys):
    """A stopped sweep goes on: finished points are not trained again."""
    data = write_encoded(tmp_path)
    files = tmp_path / "files"
    files.mkdir()
    for name in ("train.en", "valid.en", "test.en", "test.de"):
        (files / f"{name}.tsv").write_text(TAGGED, encoding="utf-8")
    small = f"--length 32 --max-positions {MAX_POSITIONS} --layers 1 --embed-dim 16 --ffn-dim 32 --heads 2 --cpu"
    values = {
        **{"data": data, "files": files, "languages": "en,de", "valid-langs": "en", "epochs": 1, "batches": 2},
        **{"rates": "1e-5,1e-2", "settings": f"--config {RECIPES}/xlm/config/finetune-toy.yaml {small}"},
    }
    file, output = str(SWEEP.with_name("sweep-tagging.yaml")), str(tmp_path / "out")
    command = [file, *(f"{name}={value}" for name, value in values.items()), "--output", output]
    experiment.main([*command, "--updates", "2", "--only", "grid/1e-2"])
    before = (tmp_path / "out/grid/1e-2-1-2/checkpoint_best.pt").stat().st_mtime_ns
    capsys.readouterr()
    experiment.main([*command, "--updates", "2"])
    printed = capsys.readouterr()
    assert (tmp_path / "out/grid/1e-2-1-2/checkpoint_best.pt").stat().st_mtime_ns == before
    assert "grid/1e-5/1/2" in printed.err and "grid/1e-2/1/2" not in printed.err
    chosen = json.loads((tmp_path / "out/best/best.json").read_text())
    assert set(chosen["validation"]) == {"1e-5-1-2", "1e-2-1-2"}
    scores = json.loads((tmp_path / "out/score/scores.json").read_text())
    assert set(scores["languages"]) == {"en", "de"} and scores["missing"] == []
    assert "| learning rate 1e-2, 1 epochs, batch 2 | " in printed.out and "| best point | " in printed.out
    larger = [word.replace("rates=1e-5,1e-2", "rates=1e-5,1e-2,5e-3") for word in command]
    experiment.main([*larger, "--updates", "2"])
    shown = capsys.readouterr().err
    assert (tmp_path / "out/grid/1e-2-1-2/checkpoint_best.pt").stat().st_mtime_ns == before
    assert "best is run again: " in shown and "(then 1e-5,1e-2, now 1e-5,1e-2,5e-3)" in shown
    assert set(json.loads((tmp_path / "out/best/best.json").read_text())["validation"]) == {
        *chosen["validation"],
        "5e-3-1-2",
    }


@pytest.mark.parametrize("kind", ["ranking", "tagging", "question-answering"])
def test_the_grid_of_every_type(tmp_path, kind):
    """Only the type, its metric and, in question answering, references and their normalization differ."""
    steps = {step.name: step for step in Experiment(SWEEP.with_name(f"sweep-{kind}.yaml"), (), tmp_path).select([])}
    load_all()
    name = OBJECTIVES[kind.replace("-", "_")].main_metric
    assert len([step for step in steps if step.startswith("grid/")]) == 27
    assert f"recipes/finetune.sh {kind} " in " ".join(steps["grid/1e-5/3/16"].commands[0])
    assert f"--task xl_{kind.replace('-', '_')} " in " ".join(steps["test"].commands[0])
    assert steps["best"].commands[0][4] == name
    assert ("--references" in steps["score"].commands[0]) == (kind == "question-answering")


def test_the_grid_of_question_answering_has_one_normalization(tmp_path):
    file = SWEEP.with_name("sweep-question-answering.yaml")
    steps = {step.name: step for step in Experiment(file, ["normalization=mlqa"], tmp_path).select([])}
    for name in ("grid/1e-5/3/16", "validation/1e-5/3/16", "score"):
        assert "--normalization mlqa" in " ".join(steps[name].commands[0]), name
