"""A stopped training resumes with the losses and parameters of an uninterrupted one, bit-identically."""

import functools
import json
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fairseq import options
from fairseq.distributed import utils as distributed_utils
from fairseq_cli import train

from fairseq_xl.engine import stopping
from fairseq_xl.engine.metrics import INTERVAL
from fairseq_xl.errors import UserError
from fairseq_xl.io import changed_settings as settings
from fairseq_xl.io.checkpoints import load_plain, save_checkpoint
from fairseq_xl.tasks.base import XLTask
from tests.command_line import cli
from tests.commands import (
    CPU,
    UNSUPERVISED,
    configuration,
    equal_parameters,
    load,
    one_run,
    pretraining,
    run_train,
    translation,
    unsupervised,
)
from tests.tasks.resuming import LAST as CHECKPOINT, SAVING, WITH_WORKERS, check_stop, losses_after
from tests.warm_python import python

UPDATES = 5  # updates of an epoch of pre-training
ROOT = Path(__file__).parents[2]
PATIENCE = 300  # seconds until a process that hangs is given up; on a busy machine one may take a minute

EPOCH = ["--updates-per-epoch", UPDATES]
BLOCKS = f"mlm.sample_break_mode=complete mlm.mixed=true mlm.warmup_length=12 mlm.warmup_length_updates={UPDATES}"
#: the weight of denoising falls to 0 at the end of epoch 2; epoch 3 has no denoising
FALLING = f"{UNSUPERVISED} xdae.weight=0:1,{UPDATES}:0.5,{2 * UPDATES}:0"


def run_of(build, *more, **options):
    """A function (data, save folder) -> a command line of fairseq-train."""
    return lambda data, folder: build(data, folder, *more, **options)


RUNS = {
    "alternate": run_of(pretraining, *EPOCH),
    # an update is two micro-steps of one objective: update 1 mlm mlm, update 2 tlm tlm
    "alternate-frequency-2": run_of(pretraining, *EPOCH, "--update-freq", 2),
    # an update is a micro-step of each objective
    "cycle-frequency-2": run_of(pretraining, *EPOCH, "--update-freq", 2, "--schedule", "cycle"),
    "random": run_of(pretraining, *EPOCH, "--schedule", "random"),
    "clm": run_of(pretraining, *EPOCH, objectives="clm"),
    "sentence-blocks": run_of(
        *(pretraining, *EPOCH, "--position-init", "sinusoidal", "--objective-options", f"mlm.length=32 {BLOCKS}"),
        objectives="mlm",
    ),
    "unsupervised": run_of(unsupervised, *EPOCH, "--objective-options", FALLING),
    "translation": run_of(translation, "--lang-pairs", "en-de,de-en", "--max-tokens", 320),
    "translation-frequency-2": run_of(translation, "-s", "de", "-t", "en", "--update-freq", 2, "--max-tokens", 84),
}
LAST = 13  # updates of a whole run: in epoch 3


@pytest.fixture(scope="module")
def uninterrupted(data_bin, tmp_path_factory):
    """A function: name of a run -> (folder, output); each run is made once.

    The stops of the tests are within epochs 1 and 2 and at their ends.
    """

    @functools.cache
    def run(name):
        folder = tmp_path_factory.mktemp(name)
        output = run_train([*RUNS[name](data_bin, folder), "--max-update", LAST, "--disable-validation"])
        messages = (record.getMessage() for record in output.records if record.name == INTERVAL)
        entries = [json.loads(message) for message in messages if message.startswith("{")]
        ends = {entry["epoch"]: int(entry["num_updates"]) for entry in entries}
        assert len(output.updates) == LAST and ends[1] == UPDATES and UPDATES + 2 < ends[2] <= LAST
        assert len(set(output.losses)) > LAST - 1
        return folder, output

    return run


def check_rest(rest, folder, whole, stop):
    """`rest`, resumed in `folder` after update `stop`, has losses and last parameters of `whole`, (folder, output)."""
    assert losses_after(rest, 0) == losses_after(whole[1], stop)
    assert equal_parameters(load(folder / CHECKPOINT), load(whole[0] / CHECKPOINT))


@pytest.mark.parametrize(
    "name, stop, workers",
    [
        ("alternate", 3, WITH_WORKERS),
        ("alternate", UPDATES, CPU),
        ("translation", UPDATES, CPU),
        ("translation", UPDATES + 2, WITH_WORKERS),
        *((name, UPDATES + 2, CPU) for name in RUNS if name not in ("alternate", "translation", "cycle-frequency-2")),
    ],
)
def test_resume_is_exact(data_bin, tmp_path, uninterrupted, name, stop, workers):
    def line(folder, *more):
        return [*RUNS[name](data_bin, folder), *SAVING, *more]

    check_stop(line, tmp_path, uninterrupted(name), stop, LAST, workers)


def test_blocks_are_short_during_the_warm_up(uninterrupted):
    """In the first epoch, which begins before update `warmup_length_updates`."""
    samples = uninterrupted("sentence-blocks")[1].samples
    longest = [max(sample["batch"]["tokens"].size(1) for sample in samples[number]) for number in sorted(samples)]
    assert max(longest[:UPDATES]) == 12 and 24 < min(longest[UPDATES:]) <= max(longest) <= 32


def test_resume_after_every_update(data_bin, tmp_path, uninterrupted):
    """Of those until the second one of epoch 2."""
    folder, whole = uninterrupted("cycle-frequency-2")
    line = [*RUNS["cycle-frequency-2"](data_bin, tmp_path), *SAVING]
    updates = {}
    for stop in (*range(1, 8), LAST):
        updates |= run_train([*line, "--max-update", stop]).updates
    assert updates == whole.updates
    assert all(len(micro_steps) == 2 for micro_steps in updates.values())
    assert equal_parameters(load(tmp_path / CHECKPOINT), load(folder / CHECKPOINT))


def test_resume_from_an_earlier_checkpoint(data_bin, tmp_path, uninterrupted):
    line = [*RUNS["alternate"](data_bin, tmp_path), "--disable-validation"]
    run_train([*line, "--max-update", 8, "--save-interval-updates", 1])
    rest = run_train([*line, "--max-update", LAST, "--restore-file", tmp_path / "checkpoint_2_7.pt"])
    check_rest(rest, tmp_path, uninterrupted("alternate"), 7)


def test_other_settings_are_reported(data_bin, tmp_path):
    """A resumed run takes the options that it is given, as in fairseq; one line lists those that have changed."""
    line = [*RUNS["alternate"](data_bin, tmp_path), "--disable-validation"]
    run_train([*line, "--max-update", 1, "--lr", 0.002])
    more = ["--lr", 0.5, "--clip-norm", 3, "--init-from", tmp_path / "checkpoint_last.pt"]
    log = run_train([*line, "--max-update", 2, *more]).log
    settings = (
        f"--clip-norm 3.0 (was 0.0), --init-from {tmp_path / 'checkpoint_last.pt'} (was None; no effect: "
        "the weights are the checkpoint's), --lr [0.5] (was [0.002])"
    )
    assert f"checkpoint_last.pt is resumed with other settings than before: {settings}\n" in log
    elsewhere = cli(save_dir=tmp_path / "new", restore_file=tmp_path / "checkpoint_last.pt", max_update=3, lr=0.1)
    assert "other settings" not in run_train([*line, *elsewhere]).log  # another run's checkpoint
    (tmp_path / "copy").symlink_to(data_bin)
    log = run_train([tmp_path / "copy", *line[1:], "--max-update", 3, "--max-tokens", 200, *more]).log
    assert f"DATA {tmp_path / 'copy'} (was {data_bin}), --max-tokens 200 (was 256)\n" in log


def test_options_of_the_run_replace_those_of_the_checkpoint(data_bin, tmp_path):
    line = [*RUNS["clm"](data_bin, tmp_path), "--max-update"]
    run_train([*line, 1])
    other = cli(weight_decay=0.25, adam_betas="(0.5, 0.6)", best_checkpoint_metric="ppl")
    log = run_train([*line, 2, *other, *cli(lr_scheduler=settings.PLATEAU, lr=0.5)]).log
    assert "--lr [0.5] (was [0.003]; no effect after the warm-up" in log
    state = load_plain(tmp_path / "checkpoint_last.pt")
    (group,) = state["last_optimizer_state"]["param_groups"]
    assert (group["weight_decay"], group["betas"], group["lr"]) == (0.25, (0.5, 0.6), 0.003)
    assert state["extra_state"]["best"] == state["extra_state"]["val_loss"]  # not the loss of the first validation
    with pytest.raises(UserError, match="was trained with .*--optimizer adam, .*--optimizer sgd, .*--reset-optimizer"):
        run_train([*line, 3, "--optimizer", "sgd"])


def test_an_epoch_that_became_too_short_is_one_sentence(data_bin, tmp_path):
    line = [*RUNS["alternate"](data_bin, tmp_path), "--disable-validation"]
    run_train([*line, "--max-update", 2])
    shorter = [*line, "--max-update", 3, "--updates-per-epoch", 1]
    with pytest.raises(UserError, match="checkpoint_last.pt: as many batches .* epoch with --reset-dataloader$"):
        run_train(shorter)
    assert list(run_train([*shorter, "--reset-dataloader"]).updates) == [3]


def test_what_changes_no_update_is_not_told(data_bin, tmp_path):
    """Logging, saving, validation, data loading, the device, and another way to write the same folder."""
    parser, line = options.get_training_parser, [*RUNS["alternate"](data_bin, tmp_path), "--max-update", 2]
    more = ["--cpu", "--num-workers", 2, "--log-interval", 5, "--validate-interval", 3, "--max-tokens-valid", 64]
    more += ["--max-update", 3, "--save-interval-updates", 1, "--patience", 4, "--ddp-backend", "legacy_ddp"]
    again = [f"{os.path.relpath(data_bin)}/", *line[1:], *more]
    assert settings.other_settings(*(configuration(parser(), each) for each in (line, again))) == []


@pytest.mark.parametrize("name", ["alternate", "translation"])
def test_validation_changes_no_loss(data_bin, tmp_path, uninterrupted, name):
    seen = run_train([*RUNS[name](data_bin, tmp_path), "--max-update", LAST, "--validate-interval-updates", 4])
    check_rest(seen, tmp_path, uninterrupted(name), 0)
    assert seen.log.count("validation on valid after ") > 4


# Killed and terminated


def last_update(folder):
    return max((int(path.stem.split("_")[2]) for path in folder.glob("checkpoint_*_*.pt")), default=0)


def updates_of(path):
    """The number of updates of a checkpoint."""
    return load_plain(path)["optimizer_history"][-1]["num_updates"]


def wait_for(condition, process_is_alive):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert process_is_alive() and time.monotonic() < end
        time.sleep(0.002)


ONE_WORKER = ["--cpu", "--num-workers", "1", "--no-progress-bar"]


@pytest.mark.parametrize("name, defaults", [("alternate-frequency-2", CPU), ("translation", ONE_WORKER)])
def test_resume_after_kill_9(data_bin, tmp_path, name, defaults):
    """The run is killed three times at a random moment: in an update or while it writes a checkpoint.

    The folder is refused until the kill and free right after it, even if a data loading process still lives.
    """
    line = [*RUNS[name](data_bin, tmp_path / "killed"), *SAVING]
    rng, reached = random.Random(name), 0
    for _ in range(3):
        endless = multiprocessing.get_context("fork").Process(
            target=run_train, args=([*line, "--max-update", 5000], defaults)
        )
        endless.start()
        wait_for(lambda: last_update(tmp_path / "killed") > reached, endless.is_alive)
        if not reached:
            with pytest.raises(UserError, match=f"process {endless.pid} on .* is already training there; wait"):
                run_train([*line, "--max-update", 5000])
        time.sleep(rng.random() * 0.02)
        os.kill(endless.pid, signal.SIGKILL)
        endless.join()
        assert endless.exitcode == -signal.SIGKILL
        reached = last_update(tmp_path / "killed")
    last, saved = reached + 4, updates_of(tmp_path / "killed" / CHECKPOINT)
    # killed before checkpoint_last was renamed, or after, or after the end of an epoch, which saves only that file
    assert reached - 1 <= saved <= reached + 1
    rest = run_train([*line, "--max-update", last])
    assert min(rest.updates) == saved + 1
    whole = run_train([*RUNS[name](data_bin, tmp_path / "whole"), "--max-update", last, "--disable-validation"])
    check_rest(rest, tmp_path / "killed", (tmp_path / "whole", whole), saved)


def terminate_in(monkeypatch, step, place):
    """SIGTERM during the call number `place` of the task's train_step or valid_step."""
    original, calls = getattr(XLTask, step), []

    def interrupted(self, *arguments, **options):
        calls.append(step)
        if len(calls) == place:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(self, *arguments, **options)

    monkeypatch.setattr(XLTask, step, interrupted)


@pytest.mark.parametrize("name, place", [("cycle-frequency-2", 1), ("translation", 2 * UPDATES + 2)])
def test_resume_after_sigterm_in_an_update(data_bin, tmp_path, uninterrupted, monkeypatch, name, place):
    """The update in progress is finished and saved, even if the signal comes in its first micro-step."""
    line = [*RUNS[name](data_bin, tmp_path), "--max-update", LAST]
    with monkeypatch.context() as patch:
        terminate_in(patch, "train_step", place)
        first = run_train(line)
    assert max(first.updates) == place and "SIGTERM" in first.log
    assert first.log.count("validation on valid after ") == (place - 1) // UPDATES  # none on the way out
    check_rest(run_train(line), tmp_path, uninterrupted(name), place)


def test_resume_after_sigterm_in_validation(data_bin, tmp_path, uninterrupted, monkeypatch):
    line = [*RUNS["translation"](data_bin, tmp_path), "--max-update", LAST]
    with monkeypatch.context() as patch:
        terminate_in(patch, "valid_step", 1)
        first = run_train(line)
    assert max(first.updates) == UPDATES + 1  # what was validated, the first epoch, and one more
    check_rest(run_train(line), tmp_path, uninterrupted("translation"), UPDATES + 1)


def test_a_stop_is_logged_whenever_its_signal_comes(caplog):
    """The signal may come before any line after an update: this update or the next is the last, and the log says so."""
    code, signaled = stopping.Stopping.agree.__code__, 0
    for number in sorted({line for *_, line in code.co_lines() if line and line > code.co_firstlineno}):
        stop = stopping.Stopping()

        def trace(frame, event, argument, stop=stop, number=number):
            if frame.f_code is code and frame.f_lineno == number:
                stop.signal = "SIGTERM"
            return trace if frame.f_code is code else None

        for update in range(2):
            before = sys.gettrace()
            sys.settrace(None if update else trace)
            try:
                stop.agree()
            finally:
                sys.settrace(before)
            assert ("SIGTERM: saving" in caplog.text) == stop.agreed
        if stop.signal:  # it has been at that line
            signaled += 1
            assert stop.agreed and stop.requested
        caplog.clear()
    assert signaled > 2


def test_a_signal_after_the_last_update_stops_the_recipe(data_bin, tmp_path, monkeypatch):
    """The training is complete, but the next step of its recipe must not begin."""
    line = [*RUNS["alternate"](data_bin, tmp_path), "--max-update", 2, *CPU]
    cfg = configuration(options.get_training_parser(), line)
    terminate_in(monkeypatch, "valid_step", 1)
    with one_run(), pytest.raises(SystemExit) as ended:
        distributed_utils.call_main(cfg, train.main)
    assert ended.value.code == 75 and updates_of(tmp_path / CHECKPOINT) == 2


def test_interrupted_once_and_twice(data_bin, tmp_path, monkeypatch):
    """Ctrl-C saves and stops like SIGTERM; a second one stops at once."""
    line = [*RUNS["alternate"](data_bin, tmp_path), "--max-update", LAST, "--disable-validation"]
    original, calls = XLTask.train_step, []

    def interrupted(self, *arguments, **options):
        calls.append(1)
        for _ in range({3: 1, 5: 2}.get(len(calls), 0)):
            os.kill(os.getpid(), signal.SIGINT)
        return original(self, *arguments, **options)

    monkeypatch.setattr(XLTask, "train_step", interrupted)
    first = run_train(line)
    assert max(first.updates) == 3 and "SIGINT: saving after this update" in first.log
    saved = (tmp_path / "checkpoint_last.pt").read_bytes()
    with pytest.raises(KeyboardInterrupt):
        run_train(line)
    assert len(calls) == 5 and (tmp_path / "checkpoint_last.pt").read_bytes() == saved


def test_sigterm_saves_and_exits(data_bin, tmp_path):
    """The command in a process of its own ends with 75: the next step of a script needs all of the training."""
    line = [*RUNS["alternate"](data_bin, tmp_path / "terminated"), *WITH_WORKERS, "--disable-validation"]
    (tmp_path / "cpu.yaml").write_text("cpu: true\n", encoding="utf-8")
    command = ["-m", "fairseq_cli.train", *line, *cli(log_file=tmp_path / "train.log", config=tmp_path / "cpu.yaml")]
    log = tmp_path / "log"
    with open(log, "wb") as stream:
        streams = dict(stdout=stream, stderr=subprocess.STDOUT)
        process = subprocess.Popen([python(), *map(str, command), "--max-update", "100000"], cwd=ROOT, **streams)
    try:
        wait_for(lambda: "update 3 of" in log.read_text(), lambda: process.poll() is None)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 75, log.read_text()
    finally:
        process.kill()
    shown, kept = log.read_text(), (tmp_path / "train.log").read_text()
    assert re.search(r"update 3 of 100,000 \| loss .* \| [\d,]+ tokens/s \| \d.*:\d\d:\d\d left \| ", shown)
    assert '{"epoch"' not in shown
    for detail in ("'_name': None", "can_reuse_epoch_itr", "(encoder): Encoder(", "grouped total_num_itrs", "DEBUG"):
        assert detail not in shown
    assert "'_name': None" in kept and " | INFO | fairseq.data.iterators | grouped total_num_itrs" in kept
    assert " | WARNING | fairseq_xl.engine.stopping | SIGTERM: saving after this update" in kept
    stop = updates_of(tmp_path / "terminated" / CHECKPOINT)
    rest = run_train([*line, "--max-update", stop + 3])
    whole = run_train(
        [*RUNS["alternate"](data_bin, tmp_path / "whole"), *cli(max_update=stop + 3, disable_validation=True)]
    )
    check_rest(rest, tmp_path / "terminated", (tmp_path / "whole", whole), stop)


def test_resume_waits_as_long_as_an_uninterrupted_run_for_early_stopping(data_bin, tmp_path):
    """--patience counts across the resume (X8): with a ruinous learning rate, both runs stop after the same update."""

    def line(folder):
        every = ["--save-interval-updates", 1, "--no-epoch-checkpoints", "--patience", 3, "--lr", 3]
        return pretraining(data_bin, folder, "--updates-per-epoch", UPDATES, *every)

    whole = run_train([*line(tmp_path / "whole"), "--max-update", 60])
    last = max(whole.updates)
    assert 4 <= last < 60
    stopped = 0
    for limit in (number for number in range(3, 62, 3) if number != last):
        seen = run_train([*line(tmp_path / "parts"), "--max-update", limit]).updates
        stopped = max(seen, default=stopped)
        if stopped < limit:
            break
    assert stopped == last
    written = (tmp_path / "parts/checkpoint_last.pt").read_bytes()
    again = run_train([*line(tmp_path / "parts"), "--max-update", 60])  # patience is at its end, --max-update is not
    assert not again.updates and "nothing to do: 3 validations were no better" in again.log
    assert (tmp_path / "parts/checkpoint_last.pt").read_bytes() == written
    assert run_train([*line(tmp_path / "parts"), "--max-update", 60, "--patience", 4]).updates


def test_a_checkpoint_with_all_updates_cannot_be_continued(data_bin, tmp_path):
    """fairseq would end without a checkpoint; in a run's own folder it is a finished run."""
    first = tmp_path / "first/checkpoint_last.pt"
    run_train([*pretraining(data_bin, first.parent, "--updates-per-epoch", UPDATES), "--max-update", 3])
    line = [*pretraining(data_bin, tmp_path / "second", "--updates-per-epoch", UPDATES), "--continue-once", first]
    for limit in (2, 3):
        with pytest.raises(UserError, match=f"--continue-once {first}: it has 3 updates, --max-update must be above 3"):
            run_train([*line, "--max-update", limit])
    assert not list((tmp_path / "second").glob("*.pt"))
    assert run_train([*line, "--max-update", 4]).updates
    written = (tmp_path / "second" / CHECKPOINT).read_bytes()
    again = run_train([*line, "--max-update", 4])
    assert not again.updates and "nothing to do: 4 updates are made" in again.log
    assert (tmp_path / "second" / CHECKPOINT).read_bytes() == written


def test_a_checkpoint_written_before_an_option_existed_is_continued(data_bin, tmp_path, caplog):
    """Without --position-init in its configuration, which says how weights that are there already began."""
    line = [*pretraining(data_bin, tmp_path, "--updates-per-epoch", UPDATES), *SAVING]
    run_train([*line, "--max-update", 2])
    state = load_plain(tmp_path / "checkpoint_last.pt")
    del state["cfg"]["model"]["position_init"]
    save_checkpoint(state, tmp_path / "checkpoint_last.pt")
    output = run_train([*line, "--max-update", 3])
    assert sorted(output.updates) == [3] and "other settings" not in output.log


def test_a_folder_with_a_run_of_another_task(data_bin, tmp_path):
    run_train(pretraining(data_bin, tmp_path, "--max-update", 1, "--disable-validation", "--updates-per-epoch", 1))
    other = translation(data_bin, tmp_path, *cli(s="en", t="de", max_tokens=200, max_update=2))
    with pytest.raises(UserError, match="is of a run of xl_pretraining, .* xl_translation: choose another --save-dir"):
        run_train(other)
