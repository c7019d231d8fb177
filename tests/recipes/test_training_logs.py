"""Totals and last validation losses of a training, read from a train.log."""

import json
import re

import pytest

from recipes.score_files import training_of
from tests.commands import pretraining, run_train


def written(folder, *lines):
    path = folder / "train.log"
    path.write_text("".join(f"2026-01-01 | INFO | {line}\n" for line in lines))
    return training_of(path)


def epoch(number, updates, tokens, clipped):
    figures = {"train_wpb": str(tokens), "train_num_updates": str(updates), "train_clip": str(clipped)}
    return "train | " + json.dumps({"epoch": number, **figures})


def validation(**losses):
    return "valid | " + json.dumps({"epoch": 1, **{f"valid_{name}": str(value) for name, value in losses.items()}})


def test_totals_and_last_losses(tmp_path):
    """The second process repeats the epoch that the first had begun: 10 x 200 + 30 x 100 tokens. Of 40 updates
    10 x 50 % + 30 x 10 % were clipped."""
    found = written(
        tmp_path,
        "valid_loss: nothing to read",
        validation(loss=9, mlm_de_loss=9.5, mlm_de_ppl=700),
        epoch(1, 10, 200.0, 50),
        epoch(2, 15, 999.0, 99),
        "fairseq_cli.train | done training in 61.5 seconds",
        epoch(2, 40, 100.0, 10),
        validation(loss=5.25, ppl=38, mlm_de_loss=4.5, mlm_de_ppl=22.6, **{"tlm_en-de_loss": 4.25}, best_loss=5.125),
        "fairseq_cli.train | done training in 28.5 seconds",
    )
    losses = {"loss": 5.25, "mlm_de": 4.5, "tlm_en-de": 4.25, "best": 5.125}
    assert found == {"updates": 40, "tokens": 5000.0, "clipped": 20.0, "minutes": 1.5, "losses": losses}


def test_without_a_whole_epoch_there_is_nothing(tmp_path):
    assert written(tmp_path, validation(loss=9), "done training in 2.0 seconds") == {}


def test_without_a_validation_there_are_no_losses(tmp_path):
    found = written(tmp_path, 'train | {"epoch": 1, "train_wpb": "7.5", "train_num_updates": "2"}')
    assert found == {"updates": 2, "tokens": 15.0, "clipped": 0.0, "minutes": 0.0, "losses": {}}


def test_the_log_of_a_training(data_bin, tmp_path):
    """fairseq writes what is read."""
    log = tmp_path / "train.log"
    line = pretraining(data_bin, tmp_path, "--updates-per-epoch", 2, "--max-update", 3, "--log-file", log)
    printed = run_train([*line, "--log-format", "json", "--clip-norm", 1e-6]).log
    found = training_of(log)
    assert (found["updates"], found["clipped"]) == (3, 100) and found["tokens"] > 0
    assert re.search(r"done training in \d+\.\d seconds", log.read_text())  # too short to be minutes
    last = [line for line in printed.splitlines() if '"valid_loss"' in line][-1]
    assert found["losses"]["loss"] == pytest.approx(float(json.loads(last[last.index("{") :])["valid_loss"]))
    assert {"loss", "mlm", "mlm_en"} <= set(found["losses"])
