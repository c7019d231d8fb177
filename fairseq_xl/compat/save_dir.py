"""--save-dir: one training at a time saves there, and none begins anew where another one has left checkpoints."""

import fcntl
import logging
import os
import re
import socket

from fairseq.distributed import utils as distributed_utils
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode

from fairseq_xl.errors import UserError

logger = logging.getLogger(__name__)

LOCK = ".lock"  # the file in --save-dir that a training holds; it stays there
#: what fairseq-train saves beside checkpoint_last.pt; {} stands for --checkpoint-suffix
CHECKPOINTS = r"checkpoint(\d+|_\d+_\d+|_best|\.best_.*){}\.pt"


def own_in_sweep(cfg) -> None:
    """Have each job of a sweep (fairseq-hydra-train -m) save in hydra's folder of the job, not all in one.

    Args:
        cfg: the configuration of fairseq-hydra-train, or what else asks for defaults.
    """
    if cfg is not None and "checkpoint" in cfg and HydraConfig.initialized():
        hydra = HydraConfig.get()
        if hydra.mode == RunMode.MULTIRUN:
            cfg.checkpoint.save_dir = hydra.runtime.output_dir


def check_last_checkpoint(cfg, suffix: str) -> None:
    """Refuse to train from the first weights over checkpoints whose checkpoint_last.pt is gone.

    Args:
        cfg: the run's `checkpoint` options.
        suffix: what the names of its checkpoints end in, before ``.pt``.

    Raises:
        UserError: --save-dir holds checkpoints, the last one is not there, and --restore-file names no other.
    """
    last = os.path.join(cfg.save_dir, f"checkpoint_last{suffix}.pt")
    chosen = cfg.no_save or cfg.restore_file != "checkpoint_last.pt"
    if chosen or os.path.exists(last) or not os.path.isdir(cfg.save_dir):
        return
    begins_with = [os.path.abspath(path) for path in (cfg.continue_once, cfg.finetune_from_model) if path]
    pattern = re.compile(CHECKPOINTS.format(re.escape(suffix)))
    paths = [os.path.join(cfg.save_dir, name) for name in os.listdir(cfg.save_dir) if pattern.fullmatch(name)]
    paths = [path for path in paths if os.path.abspath(path) not in begins_with]
    if paths:
        newest = max(paths, key=os.path.getmtime)
        raise UserError(
            f"{last} is gone, and training anew would overwrite {newest}: go on from it with --restore-file {newest}, "
            "or name an empty --save-dir"
        )


def hold(trainer) -> None:
    """Have this run alone save in its --save-dir until its trainer, or its process, is no more.

    The first rank holds the lock for all. It is one of POSIX: the system releases it when its owner ends, `kill -9`
    included, and what the owner forks to load data doesn't inherit it.

    Raises:
        UserError: another training holds it.
    """
    if trainer.cfg.checkpoint.no_save or not distributed_utils.is_master(trainer.cfg.distributed_training):
        return
    folder = trainer.cfg.checkpoint.save_dir
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, LOCK)
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        raise UserError(f"{path} cannot be opened to lock --save-dir: {error.strerror}; remove it") from error
    stream = os.fdopen(file, "r+", encoding="utf-8")
    try:
        fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError) as error:
        owner = stream.read().strip() or "another process"
        raise UserError(
            f"--save-dir {folder}: {owner} is training in it; wait for its end, or choose another --save-dir"
        ) from error
    except OSError as error:
        logger.warning("--save-dir %s cannot be locked (%s): start no second training in it", folder, error.strerror)
        return
    stream.truncate(0)
    stream.write(f"process {os.getpid()} on {socket.gethostname()}\n")
    stream.flush()
    trainer.held = stream
