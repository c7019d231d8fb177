"""The checkpoint that a run restores, and --save-dir: one training at a time, none from scratch over checkpoints."""

import contextlib
import fcntl
import logging
import os
import re
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from fairseq.distributed import utils as distributed_utils
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from fairseq_xl.errors import UserError
from fairseq_xl.io.files import replacing

logger = logging.getLogger(__name__)

LOCK = ".lock"  # the locked file in --save-dir
SWEPT = "XL_SWEPT"  # variable with the names of the swept options, also for the processes that fairseq spawns
#: names of the checkpoints that fairseq-train saves beside checkpoint_last.pt; {} is --checkpoint-suffix
CHECKPOINTS = r"checkpoint(\d+|_\d+_\d+|_best|\.best_.*){}\.pt"


def use_job_folder(cfg: Any) -> None:
    """Sets --save-dir of each job of a sweep (fairseq-hydra-train -m) to hydra's folder of the job; stores `SWEPT`.

    Args:
        cfg: the configuration of a training, perhaps not of fairseq-hydra-train.
    """
    if HydraConfig.initialized():
        hydra = HydraConfig.get()
        if hydra.mode == RunMode.MULTIRUN:
            cfg.checkpoint.save_dir = hydra.runtime.output_dir
            os.environ[SWEPT] = ",".join(swept_options(hydra))


def swept_options(hydra: Any) -> list[str]:
    """Names of the options that differ between the jobs of a sweep, such as ``optimization.lr``.

    Args:
        hydra: hydra's own configuration in a job.

    hydra writes the command of a sweep to multirun.yaml in the sweep's folder before the first job.
    """
    files = [folder / "multirun.yaml" for folder in Path(hydra.runtime.output_dir).parents]
    file = next((file for file in files if file.is_file()), None)
    if file is None:  # a sweeper that is not hydra's
        return []
    sweep = OmegaConf.load(file).hydra
    given = [f"{key}={value}" for key, value in (sweep.sweeper.get("params") or {}).items()]
    parsed = OverridesParser.create().parse_overrides([*given, *sweep.overrides.task])
    return [override.key_or_group for override in parsed if override.is_sweep_override()]


def chosen(cfg: DictConfig) -> tuple[str, dict[str, bool]]:
    """The checkpoint to restore, as fairseq chooses it, and which of its states are left out."""
    resets = {name: cfg[f"reset_{name}"] for name in ("optimizer", "lr_scheduler", "meters", "dataloader")}
    weights, suffix = cfg.finetune_from_model, cfg.checkpoint_suffix
    if weights and any(resets.values()):
        raise UserError("--finetune-from-model cannot be given with --reset-optimizer or another --reset-… option")
    if cfg.restore_file != "checkpoint_last.pt":
        if weights:
            raise UserError("--finetune-from-model and --restore-file cannot be given together")
        return cfg.restore_file.replace(".pt", f"{suffix}.pt"), resets
    last = os.path.join(cfg.save_dir, f"checkpoint_last{suffix}.pt")
    if os.path.exists(last):
        return last, resets
    if cfg.continue_once:
        return cfg.continue_once, resets
    if not weights:
        return last, resets
    if not os.path.exists(weights):
        raise UserError(f"--finetune-from-model {weights} does not exist")
    return weights, dict.fromkeys(resets, True)


def check_last_checkpoint(cfg: Any, suffix: str, is_of_run: Callable[[str], bool] = lambda path: False) -> None:
    """Refuses to train from scratch over checkpoints without a checkpoint_last.pt, unless this run saved them.

    fairseq saves a checkpoint, and at the end copies it to checkpoint_last.pt. If a full disk or a kill came in between
    when the first one was saved, the copy is made here.

    Args:
        cfg: the run's `checkpoint` options.
        suffix: --checkpoint-suffix, which stands before ``.pt``.
        is_of_run: whether a checkpoint is of this run.

    Raises:
        UserError: --save-dir holds checkpoints but not the last one, and --restore-file names no other.
    """
    last = os.path.join(cfg.save_dir, f"checkpoint_last{suffix}.pt")
    chosen = cfg.no_save or cfg.restore_file != "checkpoint_last.pt"
    if chosen or os.path.exists(last) or not os.path.isdir(cfg.save_dir):
        return
    initial = [os.path.abspath(path) for path in (cfg.continue_once, cfg.finetune_from_model) if path]
    pattern = re.compile(CHECKPOINTS.format(re.escape(suffix)))
    paths = [os.path.join(cfg.save_dir, name) for name in os.listdir(cfg.save_dir) if pattern.fullmatch(name)]
    paths = [path for path in paths if os.path.abspath(path) not in initial]
    if paths:
        newest = max(paths, key=os.path.getmtime)
        if is_of_run(newest):
            logger.warning("%s is missing: the run continues from %s", last, newest)
            with open(newest, "rb") as source, replacing(last) as target:
                shutil.copyfileobj(source, target, 1 << 20)
            return
        raise UserError(
            f"{last} is missing, and training from scratch would overwrite {newest}: continue from it with "
            f"--restore-file {newest}, or choose an empty --save-dir"
        )


@contextlib.contextmanager
def lock(cfg: DictConfig) -> Iterator[None]:
    """Makes --save-dir and locks it for this run, in this block; what holds nothing at the end is removed again.

    The first rank holds the lock for all. It is a POSIX record lock: the system releases it when the process ends, by
    `kill -9` too, and forked data loaders do not inherit it.

    Raises `UserError` if another training holds the lock, and for a folder that is not writable.
    """
    folder = cfg.checkpoint.save_dir
    if cfg.checkpoint.no_save or not distributed_utils.is_master(cfg.distributed_training):
        yield
        return
    is_new, path = not os.path.exists(folder), os.path.join(folder, LOCK)
    try:
        os.makedirs(folder, exist_ok=True)
        stream = _locked(path)
    except OSError as error:
        raise UserError(f"--save-dir {folder}: {os.path.basename(error.filename)}: {error.strerror}") from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.remove(path)  # before the lock is released
        stream.close()
        if is_new:
            with contextlib.suppress(OSError):  # it is not empty
                os.rmdir(folder)


def _locked(path: str) -> TextIO:
    """Opens a file and locks it; raises `UserError` if another process has done so."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        stream = os.fdopen(file, "r+", encoding="utf-8")
        try:
            fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            owner, folder = stream.read().strip() or "another process", os.path.dirname(path)
            raise UserError(
                f"--save-dir {folder}: {owner} is already training there; wait until it ends, or choose another one"
            ) from error
        except OSError as error:
            logger.warning("%s cannot be locked (%s): start only one training there", path, error.strerror)
            return stream
        if os.path.exists(path) and os.path.samestat(os.fstat(file), os.stat(path)):
            stream.truncate(0)
            stream.write(f"process {os.getpid()} on {socket.gethostname()}\n")
            stream.flush()
            return stream
        stream.close()  # of a training that has just ended and removed it
