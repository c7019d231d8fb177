"""Launcher of the two updates of a rehearsal: imports fairseq once and forks the ranks of each training.

    python -m fairseq_xl.rehearsal.launcher FOLDER

reads the settings of FOLDER/settings.json, trains one after the other, and appends a line of JSON for each to
FOLDER/results.jsonl. The ranks of a training are new forks, so that a training leaves no state of fairseq to the next
one; its configuration is composed once, before the fork. A training that fails or takes too long does not end the
others. Ranks end with the launcher, and the launcher ends when its standard input is closed.
"""

import dataclasses
import gc
import io
import json
import logging
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import threading
import time
from contextlib import redirect_stderr
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # imported before the forks: optimizers import it, which takes more than a second
from omegaconf import open_dict

from fairseq_xl import register
from fairseq_xl.engine import launch
from fairseq_xl.io.error_reporting import message
from fairseq_xl.rehearsal.setting import Prepared, Setting, prepare
from fairseq_xl.rehearsal.updates import PROCESSES, RESULTS, SETTINGS, UpdateResult


def main(name: str) -> None:
    """Trains the settings of a folder; see the module's docstring."""
    register()
    gc.freeze()  # collecting garbage would copy in each fork what all share
    folder = Path(name)
    content = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    for values in content["settings"]:
        setting = Setting(**values | {"arguments": tuple(values["arguments"])})
        result = _update(setting, folder / "training", content["deadline"])
        with open(folder / RESULTS, "a", encoding="utf-8") as file:
            file.write(json.dumps(dataclasses.asdict(result)) + "\n")


def _update(setting: Setting, folder: Path, deadline: float) -> UpdateResult:
    """Makes two updates of a setting; the new folder, with its text, is removed again."""
    printed = io.StringIO()
    try:
        try:
            with redirect_stderr(printed):
                training = prepare(setting, folder, small=True)
        except SystemExit:  # of argparse, which has printed the error of a flag; others end the launcher
            return UpdateResult(error=printed.getvalue().strip().rpartition("\n")[2])
        result = train_together(training, deadline)
        return dataclasses.replace(result, notes=tuple(training.notes))
    except Exception as error:
        return UpdateResult(error=_sentence(error))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def train_together(training: Prepared, deadline: float) -> UpdateResult:
    """Trains in `PROCESSES` forks and ends them all: at their end, at the first error, or after `deadline` seconds."""
    context = multiprocessing.get_context("fork")
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    processes: dict[Connection, Any] = {}
    losses: dict[Connection, tuple[float, ...]] = {}
    end = time.monotonic() + deadline
    try:
        for rank in range(PROCESSES):
            reader, writer = context.Pipe(duplex=False)
            processes[reader] = context.Process(target=_rank, args=(rank, port, training, writer))
            processes[reader].start()
            writer.close()
        while len(losses) < PROCESSES:
            waiting = {reader for reader in processes if reader not in losses}
            ready = wait([*waiting, sys.stdin.fileno()], max(0.0, end - time.monotonic()))
            if not ready:
                count = "no process has" if not losses else f"only {len(losses)} of {PROCESSES} processes has"
                return UpdateResult(error=f"{count} finished after {deadline:g} seconds: all were ended (--deadline)")
            if sys.stdin.fileno() in ready:
                sys.exit("the process that started the launcher has ended")
            for reader in waiting.intersection(ready):
                try:
                    result = reader.recv()
                except EOFError:
                    processes[reader].join()
                    status = processes[reader].exitcode
                    return UpdateResult(error=f"a process ended without a message, with status {status}")
                if result.error is not None:
                    return result
                losses[reader] = result.losses
    finally:
        for process in processes.values():
            process.kill()
            process.join()
    return UpdateResult(losses=losses[next(iter(processes))])  # of rank 0, the only one that logs them


def _rank(rank: int, port: int, training: Prepared, writer: Connection) -> None:
    """Trains as one of the processes, and sends the result; then it waits until the launcher ends it.

    A rank that ended after an error would cause another error in the other one, whose connection is lost.
    """
    threading.Thread(target=_end_with_launcher, daemon=True).start()
    launched = {"MASTER_ADDR": "localhost", "MASTER_PORT": port, "WORLD_SIZE": PROCESSES}  # as torchrun sets them
    os.environ.update({key: str(value) for key, value in {**launched, "RANK": rank, "LOCAL_RANK": rank}.items()})
    try:
        result = UpdateResult(losses=tuple(_train(training)))
    except Exception as error:
        result = UpdateResult(error=_sentence(error))
    writer.send(result)
    signal.pause()


def _sentence(error: Exception) -> str:
    """The message of an error that the user can correct, else the error's first line."""
    return message(error) or f"{type(error).__name__}: {str(error).strip()}".splitlines()[0]


def _end_with_launcher() -> None:
    launcher = multiprocessing.parent_process()
    assert launcher is not None
    wait([launcher.sentinel])
    os._exit(1)


class _Losses(logging.Handler):
    """Keeps the losses of updates, which fairseq logs as JSON."""

    def __init__(self) -> None:
        super().__init__()
        self.losses: list[float] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps the loss of a record about an update."""
        if record.name == "train_inner":
            self.losses.append(float(json.loads(record.getMessage())["loss"]))


def _train(training: Prepared) -> list[float]:
    """Trains, and returns the losses of the updates on rank 0; other ranks log none."""
    cfg, handler = training.cfg, _Losses()
    with open_dict(cfg):
        common, checkpoint = cfg.common, cfg.checkpoint
        common.cpu = torch.cuda.device_count() < PROCESSES
        common.log_format, common.log_interval, common.log_file, common.tensorboard_logdir = "none", 1, None, None
        checkpoint.save_dir, checkpoint.no_save = str(training.folder / "save"), True
        cfg.dataset.num_workers = 0
        cfg.distributed_training.distributed_init_method = None
    logging.basicConfig(handlers=[handler], force=True)
    launch.train(cfg)
    return handler.losses


if __name__ == "__main__":
    main(sys.argv[1])
