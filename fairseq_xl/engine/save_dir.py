"""The checkpoint that a run restores, and --save-dir: one training at a time, none from scratch over checkpoints."""

import contextlib
import fcntl
import logging
import os
import re
import socket
from collections.abc import Callable, Iterator
from typing import TextIO

from fairseq.distributed import utils as distributed_utils
from omegaconf import DictConfig

from fairseq_xl.errors import UserError

logger = logging.getLogger(__name__)

LOCK = ".lock"  # the locked file in --save-dir
#: names of the checkpoints that fairseq-train saves beside checkpoint_last.pt; {} is --checkpoint-suffix
CHECKPOINTS = r"checkpoint(\d+|_\d+_\d+|_best|\.best_.*){}\.pt"


def choose_checkpoint(cfg: DictConfig) -> tuple[str, dict[str, bool]]:
    """Chooses the checkpoint to restore, as fairseq does, and the states that are not restored.

    Raises `UserError` for options that exclude each other, for a missing file, and where a training from scratch would
    overwrite checkpoints.
    """
    resets = {name: cfg[f"reset_{name}"] for name in ("optimizer", "lr_scheduler", "meters", "dataloader")}
    weights, suffix = cfg.finetune_from_model, cfg.checkpoint_suffix
    if weights and any(resets.values()):
        raise UserError("--finetune-from-model cannot be given with --reset-optimizer or another --reset-… option")
    is_default = cfg.restore_file == "checkpoint_last.pt"
    path = cfg.restore_file.replace(".pt", f"{suffix}.pt")
    last = os.path.join(cfg.save_dir, f"checkpoint_last{suffix}.pt") if is_default else path
    if os.path.lexists(last) and not os.path.isfile(last):
        raise UserError(f"{last} is not a file: it is where the run's last checkpoint is read and written")
    if not is_default:
        if weights:
            raise UserError("--finetune-from-model and --restore-file cannot be given together")
        if os.path.basename(cfg.restore_file) != "checkpoint_last.pt" and not os.path.isfile(path):
            raise UserError(f"--restore-file {path} does not exist")
    elif not os.path.exists(last):
        _check_overwrites_none(cfg, last)
        if cfg.continue_once:
            return cfg.continue_once, resets
        if weights:
            if not os.path.exists(weights):
                raise UserError(f"--finetune-from-model {weights} does not exist")
            return weights, dict.fromkeys(resets, True)
    return last, resets


def _check_overwrites_none(cfg: DictConfig, last: str) -> None:
    """Raises `UserError` if --save-dir holds checkpoints, but not the last one."""
    if cfg.no_save or not os.path.isdir(cfg.save_dir):
        return
    initial = [os.path.abspath(path) for path in (cfg.continue_once, cfg.finetune_from_model) if path]
    pattern = re.compile(CHECKPOINTS.format(re.escape(cfg.checkpoint_suffix)))
    paths = [os.path.join(cfg.save_dir, name) for name in os.listdir(cfg.save_dir) if pattern.fullmatch(name)]
    paths = [path for path in paths if os.path.abspath(path) not in initial]
    if paths:
        newest = max(paths, key=os.path.getmtime)
        raise UserError(
            f"{last} is missing, and training from scratch would overwrite {newest}: continue from it with "
            f"--restore-file {newest}, or choose an empty --save-dir"
        )


@contextlib.contextmanager
def lock(cfg: DictConfig) -> Iterator[None]:
    """Creates and locks --save-dir for this run, in this block; a new folder that stays empty is removed.

    The first rank holds the lock for all. It is a POSIX record lock: the system releases it when the process ends, by
    `kill -9` too, and forked data loaders do not inherit it.

    Raises `UserError` if another training holds the lock, and for a folder that is not writable.
    """
    folder = cfg.checkpoint.save_dir
    if cfg.checkpoint.no_save or not distributed_utils.is_master(cfg.distributed_training):
        yield
        return
    is_new, path = not os.path.exists(folder), os.path.join(folder, LOCK)
    with contextlib.ExitStack() as stack:
        if is_new:
            stack.callback(_remove, os.rmdir, folder)  # unless it is not empty
        try:
            os.makedirs(folder, exist_ok=True)
            stack.callback(_lock(folder, path).close)
            stack.callback(_remove, os.remove, path)  # before the lock is released
        except OSError as error:
            raise UserError(f"--save-dir {folder}: {error.strerror}, {error.filename or path}") from error
        yield


def _remove(function: Callable[[str], None], path: str) -> None:
    with contextlib.suppress(OSError):
        function(path)


def _lock(folder: str, path: str) -> TextIO:
    """Opens a file and locks it; raises `UserError` if another process holds the lock."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        stream = os.fdopen(file, "r+", encoding="utf-8")
        try:
            fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            owner = stream.read().strip() or "another process"
            raise UserError(
                f"--save-dir {folder}: {owner} is already training there; wait until it ends, or choose another one"
            ) from error
        except OSError as error:
            logger.warning("%s cannot be locked (%s): start only one training there", path, error.strerror)
            return stream
        with contextlib.suppress(FileNotFoundError):  # a training that has just ended removed it
            if os.path.samestat(os.fstat(file), os.stat(path)):
                with contextlib.suppress(OSError):  # a full disk: the owner is for messages only
                    os.ftruncate(file, 0)
                    os.write(file, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
                return stream
        stream.close()
