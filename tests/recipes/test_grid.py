"""finetune.sh --grid and --best-by-language against all checkpoints of all points, at nano size."""

import contextlib
import json

import pytest
import yaml

from fairseq_xl.errors import UserError
from fairseq_xl.io.checkpoints import load_plain
from recipes import best_of_grid
from tests.builders import FILES, task_files, validation_losses, write_task  # noqa: F401
from tests.command_line import cli
from tests.commands import MAX_POSITIONS, run_validate
from tests.recipes.configurations import XLM
from tests.recipes.scripts import run, succeeded
from tests.tasks.conftest import write_encoded

pytestmark = pytest.mark.usefixtures("warm")
CODES, EPOCHS = ["en", "de", "fr"], 3
SMALL = {"length": 32, "max-positions": MAX_POSITIONS, "layers": 1, "embed-dim": 16, "ffn-dim": 32, "heads": 2}


def test_the_papers_grids(capsys):
    for grid, expected in (
        ("lr=1e-5,2e-5,3e-5 max-epoch=3,5,10 batch-size=16,32,64", 27),  # V9
        ("lr=1e-5,5e-6,2e-6 batch-size=8,16", 6),  # X9
    ):
        best_of_grid.points(grid)
        lines = capsys.readouterr().out.splitlines()
        assert len({line.split()[0] for line in lines}) == expected
        assert lines[1].split()[0].startswith("lr=1e-5,") and lines[1].split()[1:3] == ["--lr", "1e-5"]


def test_every_value_is_read_before_the_first_training(capsys):
    for grid, problem in (
        *((" ", ""), ("lr", ""), ("=1", "")),
        *(("lr=1,,2", "lr=1,,2 has an empty value: "), ("lr=1 lr=2", "lr is named twice: ")),
    ):
        with pytest.raises(UserError, match=f"--grid .*: {problem}expected FLAG=VALUE,VALUE …"):
            best_of_grid.points(grid)
    number = "argument --lr: expected a finite number, or several joined by commas, found '5e4x'"
    for grid, message in (
        ("lr=1e-3,5e4x batch-size=8", number),
        ("learning-rate=1,2", "unrecognized arguments: --learning-rate: did you mean --lr?"),
        ("stride=1 momentum=0.9 total-num-update=9", ""),  # of question answering, another optimizer and scheduler
    ):
        with pytest.raises(SystemExit) if message else contextlib.nullcontext():
            best_of_grid.points(grid)
        assert capsys.readouterr().err == (f"finetune.sh --grid: error: {message}\n" if message else "")


def test_the_best_point_and_epoch_of_each_language_are_those_of_all_checkpoints(tmp_path):
    """A larger grid trains the new points only. French has no validation text: the average selects."""
    data, files, folder = write_encoded(tmp_path), write_task(tmp_path / "files", 1), tmp_path / "out"
    config = tmp_path / "small.yaml"
    config.write_text(yaml.safe_dump(SMALL | {"no-epoch-checkpoints": None, "cpu": True}))
    flags = ["--config", XLM / "finetune-toy.yaml", "--config", config, "--max-epoch", EPOCHS, "--warmup-updates", "1"]
    flags += ["--valid-langs", "en,de", "--best-by-language"]
    command = ["bash", "recipes/finetune.sh", "classification", data, folder, files, "en,de", ",".join(CODES), *flags]
    succeeded(run(*command, "--grid", "lr=0.01"))
    trained = folder / "grid/lr=0.01/checkpoint_last.pt"
    before = trained.stat().st_mtime_ns
    succeeded(run(*command, "--grid", "lr=0.01,0.002"))
    assert trained.stat().st_mtime_ns == before
    points = ["lr=0.01", "lr=0.002"]
    values, written = {}, {}
    for point in points:
        for epoch in range(1, EPOCHS + 1):
            path, to = folder / f"grid/{point}/checkpoint{epoch}.pt", tmp_path / f"{point}-{epoch}"
            options = cli(task="xl_classification", path=path, user_dir="fairseq_xl", batch_size=8)
            options += cli(valid_langs="en,de", valid_subset="valid,test", predictions_to=to)
            measured = validation_losses(run_validate([data, *options]))[0]
            for key, name in {"average": "accuracy", "en": "accuracy_en", "de": "accuracy_de"}.items():
                values.setdefault(key, {})[point, epoch] = float(measured[name])
            written[point, epoch] = to
    summary = json.loads((folder / "best.json").read_text())
    for code, key in {"en": "en", "de": "de", "fr": "average"}.items():
        best = max(values[key], key=lambda item: (values[key][item], -points.index(item[0]), item[1]))
        expected = (written[best] / f"test.{code}.tsv").read_text(encoding="utf-8")
        assert (folder / f"predictions/test.{code}.tsv").read_text(encoding="utf-8") == expected, (code, best, values)
        assert (summary["best"][key], summary["at"][key]["epoch"]) == best
    assert summary["best"].keys() == values.keys() and summary["validation"].keys() == set(points)
    scores = json.loads((folder / "scores.json").read_text())
    assert set(scores["languages"]) == set(CODES) and scores["missing"] == []
    without = run(*command)
    assert without.returncode and "made with other settings" in without.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ranking", "tagging", "question-answering"])
def test_grids_of_the_other_types(task_files, tmp_path, kind):
    """Each language's predictions are those of the checkpoint with the highest value of all points, and are scored."""
    data, folder, codes = write_encoded(tmp_path), tmp_path / "out", ["en", "de"]
    config, name = tmp_path / "small.yaml", kind.replace("-", "_")
    config.write_text(yaml.safe_dump(SMALL | {"cpu": True}))
    flags = ["--config", XLM / "finetune-toy.yaml", "--config", config, "--max-epoch", 2, "--warmup-updates", "1"]
    flags += ["--question-length", 8, "--stride", 8] * (name == "question_answering")
    files = task_files[name]
    command = ["bash", "recipes/finetune.sh", kind, data, folder, files, "en,de", "en,de", *flags]
    succeeded(run(*command, "--grid", "lr=0.002,0.01", "--best-by-language"))
    best = json.loads((folder / "best.json").read_text())["best"]
    for code in codes:
        values = {
            point: load_plain(folder / f"grid/{point}/checkpoint_best_{code}.pt")["extra_state"]["best_by_language"][
                code
            ]
            for point in ("lr=0.002", "lr=0.01")
        }
        assert best[code] == max(values, key=values.__getitem__)
        path = folder / f"grid/{best[code]}/checkpoint_best_{code}.pt"
        options = cli(task=f"xl_{name}", path=path, user_dir="fairseq_xl", batch_size=8, valid_subset="test")
        run_validate([data, *options, *cli(predictions_to=tmp_path / code)])
        file = f"test.{code}.{FILES[name]}"
        assert (folder / "predictions" / file).read_bytes() == (tmp_path / code / file).read_bytes()
    assert set(json.loads((folder / "scores.json").read_text())["languages"]) == set(codes)
