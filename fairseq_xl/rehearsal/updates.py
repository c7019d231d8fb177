"""Makes two real updates of trainings, with tiny models and text, in two processes that train together.

    python -m fairseq_xl.rehearsal.updates FOLDER      # one process, with the environment that torchrun sets

runs the settings of FOLDER/settings.json one after the other, and writes FOLDER/NUMBER.json after each, or the error
and ends with status 1.
"""

import dataclasses
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.logging import metrics
from fairseq_cli import train
from omegaconf import open_dict

from fairseq_xl import register
from fairseq_xl.error_reporting import message
from fairseq_xl.errors import UserError
from fairseq_xl.rehearsal.setting import Prepared, Setting, prepared

PROCESSES = 2
SETTINGS = "settings.json"


@dataclass(frozen=True)
class Updated:
    """Result of two updates: their losses in bits, or the error."""

    losses: tuple[float, ...] = ()
    error: str | None = None
    notes: tuple[str, ...] = ()  # how the training differs from its flags


def update(settings: Sequence[Setting], python: str = sys.executable) -> list[Updated]:
    """Makes two updates of each setting in two processes, which are started again after an error.

    Args:
        python: the interpreter of the processes.
    """
    with tempfile.TemporaryDirectory(prefix="rehearsal-") as name:
        folder, found = Path(name), dict[int, Updated]()
        waiting = []
        for number, setting in enumerate(settings):
            try:
                notes = tuple(prepared(setting, folder / f"text{number}", small=True).notes)
            except UserError as error:
                found[number] = Updated(error=str(error))
                continue
            waiting.append((number, setting, notes))
        while waiting:
            described = [(number, dataclasses.asdict(setting)) for number, setting, _ in waiting]
            (folder / SETTINGS).write_text(json.dumps(described), encoding="utf-8")
            log, failed = _run(folder, python), False
            while waiting and not failed:
                number, _, notes = waiting[0]
                result = folder / f"{number}.json"
                if result.is_file():
                    found[number] = Updated(**json.loads(result.read_text(encoding="utf-8")), notes=notes)
                else:
                    found[number] = Updated(error=log, notes=notes)
                failed = found[number].error is not None
                waiting.pop(0)
    return [found[number] for number in range(len(settings))]


def _run(folder: Path, python: str) -> str:
    """Runs the settings of a folder in `PROCESSES` processes until one ends with an error; the last line printed."""
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    processes, log = [], folder / "log"
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "XL_STOPPED"))}
    common = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "WORLD_SIZE": str(PROCESSES)}
    paths = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]))
    common |= {"PYTHONPATH": paths, "PYTHONWARNINGS": "ignore"}
    with open(log, "wb") as stream:
        for rank in range(PROCESSES):
            told = {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
            }
            command = [python, "-m", "fairseq_xl.rehearsal.updates", str(folder)]
            started = subprocess.Popen(
                command,
                env=kept | common | told,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
            )
            processes.append(started)
        try:
            while any(process.poll() is None for process in processes):
                if any(process.poll() for process in processes):  # the others would wait for it
                    break
                time.sleep(0.02)
        finally:
            for process in processes:
                process.kill()
                process.wait()
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "the processes ended without a message")


class _Losses(logging.Handler):
    """Keeps the losses of updates, which fairseq logs as JSON."""

    def __init__(self) -> None:
        super().__init__()
        self.losses: list[float] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps the loss of a record about an update."""
        if record.name == "train_inner":
            self.losses.append(float(json.loads(record.getMessage())["loss"]))


def _train(made: Prepared, folder: Path) -> list[float]:
    """Trains, and returns the losses of the updates on rank 0; other ranks log none."""
    cfg, handler, root = made.cfg, _Losses(), logging.getLogger()
    with open_dict(cfg):
        common, checkpoint = cfg.common, cfg.checkpoint
        common.cpu = torch.cuda.device_count() < PROCESSES
        common.log_format, common.log_interval, common.log_file, common.tensorboard_logdir = "json", 1, None, None
        checkpoint.save_dir, checkpoint.no_save = str(folder / "save"), True
        cfg.dataset.num_workers = 0
        cfg.distributed_training.distributed_init_method = None
    root.handlers = [handler]
    for function in (checkpoint_utils.save_checkpoint, train.should_stop_early):  # where fairseq keeps the best scores
        vars(function).clear()
    metrics.reset()
    distributed_utils.call_main(cfg, train.main)
    return handler.losses


def main(name: str) -> None:
    """Runs the settings of a folder in this process; see the module's docstring."""
    register()
    folder = Path(name)
    for number, described in json.loads((folder / SETTINGS).read_text(encoding="utf-8")):
        setting = Setting(**described | {"arguments": tuple(described["arguments"])})
        try:
            losses = _train(prepared(setting, folder / f"text{number}", small=True, write=False), folder)
            if os.environ["RANK"] == "0":
                _write(folder / f"{number}.json", Updated(losses=tuple(losses)))
        except Exception as error:
            sentence = (
                message(error) or f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"
            )
            _write(folder / f"{number}.json", Updated(error=sentence))
            raise
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _write(path: Path, result: Updated) -> None:
    temporary = path.with_suffix(f".{os.environ['RANK']}")
    temporary.write_text(json.dumps({"losses": result.losses, "error": result.error}), encoding="utf-8")
    temporary.replace(path)


if __name__ == "__main__":
    main(sys.argv[1])
