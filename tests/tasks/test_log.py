"""The log of a training: --log-file has every record once with its time; the console shows the progress."""

import logging
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from fairseq.logging import progress_bar

from fairseq_xl.engine import log
from fairseq_xl.evaluation.training_curves import read_log
from tests.command_line import cli
from tests.commands import pretraining, run_train

TIMED = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \| [A-Z]+ \| ")


def test_the_log_file_has_everything_once_and_with_its_time(data_bin, tmp_path):
    path = tmp_path / "train.log"
    settings = ["--updates-per-epoch", 2, "--log-format", "json", "--log-file", path, "--save-interval-updates", 1]
    line = pretraining(data_bin, tmp_path / "run", *settings)
    run_train([*line, "--max-update", 3])
    run_train([*line, "--max-update", 4, "--lr", 0.001])
    lines = path.read_text(encoding="utf-8").splitlines()
    assert all(TIMED.match(line) or line[:1] in " )" for line in lines)  # except for the rows of the model
    ours = [line for line in lines if " | WARNING | fairseq_xl.engine.resume | " in line]
    assert len(ours) == 1 and ours[0].endswith("is resumed with other settings than before: --lr [0.001] (was [0.003])")
    entries = read_log(path)
    assert [entry["num_updates"] for entry in entries["train_inner"]] == [1, 2, 3, 4]
    assert [entry["max_update"] for entry in entries["train_inner"]] == [3, 3, 3, 4]
    assert all(entry["seconds_left"] >= 0 for entry in entries["train_inner"])
    assert [entry["num_updates"] for entry in entries["valid"]] == [1, 2, 3, 4]
    assert sum('{"epoch": 1, "train_loss"' in line for line in lines) == 1
    for entry in entries["valid"]:
        names = [name for name in entry if re.search("loss|ppl", name) and not name.startswith("best")]
        assert names == ["loss", "ppl", *sorted(names[2:])] and len(names) > 8


def test_training_goes_on_without_a_log_file_that_cannot_be_written(data_bin, tmp_path, capfd):
    """One warning, where logging would show a traceback for each record; /dev/full is a full disk."""
    run = run_train([*pretraining(data_bin, tmp_path), "--log-file", "/dev/full", "--max-update", 2])
    assert list(run.updates) == [1, 2] and (tmp_path / "checkpoint_last.pt").exists()
    shown = capfd.readouterr().err
    assert "Traceback" not in shown and "Logging error" not in shown
    line = "fairseq_xl: warning: --log-file /dev/full cannot be written (No space left on device): training goes on"
    assert shown.count("--log-file") == 1 and line in shown


def test_the_log_file_is_utf8_whatever_the_locale(tmp_path):
    with log.written_to(str(tmp_path / "train.log")):
        logging.getLogger("fairseq_cli.train").error("ü")
    assert (tmp_path / "train.log").read_bytes().endswith("ü\n".encode())


@pytest.mark.parametrize(
    "limits, last", [(["--max-update", 3], 3), (["--max-epoch", 2], 4), (["--max-epoch", 2, "--max-update", 9], 4)]
)
def test_progress_is_logged_in_updates(data_bin, tmp_path, limits, last):
    line = pretraining(data_bin, tmp_path, "--updates-per-epoch", 2, "--no-save", "--disable-validation", *limits)
    pattern = r"^update (\d) of (\d) \| loss [\d.]+ \| [mt]lm_loss [\d.]+ (?:\| [\d,]+ tokens/s )?\| "
    pattern += r"\d+:\d\d:\d\d left \| lr [\de.-]+ \| gradient norm [\d.]+$"
    shown = re.findall(pattern, run_train(line).log, re.MULTILINE)
    assert shown == [(f"{n}", f"{last}") for n in range(1, last + 1)]


def test_tensorboard_has_all_statistics(data_bin, tmp_path, monkeypatch):
    written = []

    class Writer:
        def __init__(self, folder):
            self.name = Path(folder).name

        def add_text(self, *_):
            pass

        def add_scalar(self, name, value, step):
            written.append((self.name, name, step))

        def flush(self):
            pass

    monkeypatch.setattr(progress_bar, "SummaryWriter", Writer)
    monkeypatch.setattr(progress_bar, "_tensorboard_writers", {})
    line = pretraining(data_bin, tmp_path, "--updates-per-epoch", 2, "--max-update", 2, "--no-save")
    run_train([*line, "--tensorboard-logdir", tmp_path / "events"])
    expected = {("train_inner", "loss", 1), ("train_inner", "gnorm", 2), ("train", "ppl", 2), ("valid", "ppl", 2)}
    assert expected <= set(written)


def test_the_console_is_short():
    for name, level, message, shown in (
        ("fairseq_cli.train", logging.INFO, {"common": None}, False),
        ("fairseq_cli.train", logging.INFO, "processes: 1", True),
        ("fairseq_cli.generate", logging.INFO, {"common": None}, False),
        ("fairseq.tasks.fairseq_task", logging.INFO, "can_reuse_epoch_itr = False", False),
        ("fairseq.tasks.fairseq_task", logging.WARNING, "100 samples have invalid sizes", True),
        ("train_inner", logging.INFO, '{"epoch": 1, "loss": "2"}', False),
        ("fairseq_xl.tasks.base", logging.INFO, "weights from there", True),
    ):
        assert log.is_for_console(logging.LogRecord(name, level, "", 0, message, (), None)) is shown


def test_options_without_effect_are_named(data_bin, tmp_path):
    line = pretraining(data_bin, tmp_path, *cli(max_update=1, no_save=True, disable_validation=True), objectives="clm")
    named = cli(required_batch_size_multiple=16, curriculum=2, fp16_init_scale=4, ema_decay=0.5, pairs="en-de")
    named += cli(patience=3, keep_last_epochs=2)  # without validation and checkpoints
    limits = ["--objective-options", "clm.length=32 clm.batch_tokens=512 veco_bi.length=32"]
    log = run_train([*line, *named, *limits]).log
    (text,) = [message for message in log.splitlines() if message.startswith("no effect: ")]
    values = zip(named[::2], named[1::2])
    assert {name for name, value in values if f"{name} {value} (" in text} == {*named[::2]}
    assert "--max-tokens 256 (the size of a batch is clm.batch_tokens)" in text
    assert "--objective-options: those of veco_bi are not used" in log
    equal = ["--objective-options", "clm.length=32 clm.batch_sentences=8"]  # 8 x 32 tokens fit in --max-tokens
    for settings in ([], equal):
        assert "no effect: " not in run_train([*line, *settings, "--max-update", 2]).log
    decay = cli(lr_scheduler="polynomial_decay", total_num_update=2, max_update=3)
    expected = "no effect: --max-update 3 (the learning rate is 0 after --total-num-update 2)"
    assert expected in run_train([*line, *decay]).log


def test_limits_of_batches_are_those_of_objectives():
    """Those of the run where an objective has none."""
    run = SimpleNamespace(max_tokens=4096, batch_size=None)
    limits = ((2048, None), (None, 16), (None, None), (2048, None))
    objectives = {
        number: SimpleNamespace(cfg=SimpleNamespace(batch_tokens=tokens, batch_sentences=sentences))
        for number, (tokens, sentences) in enumerate(limits)
    }
    assert log._batch_limits(run, objectives) == "2,048 tokens or 16 examples or 4,096 tokens"
