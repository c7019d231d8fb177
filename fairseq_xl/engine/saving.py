"""Saves the checkpoints of a training, each whole or not at all, and removes old ones."""

import contextlib
import logging
import os
import re
import shutil
import time
from typing import Any

import numpy as np
from fairseq import utils
from fairseq.checkpoint_utils import checkpoint_paths
from fairseq.data import iterators
from omegaconf import DictConfig

from fairseq_xl.engine import divergence
from fairseq_xl.engine.selection import Selection
from fairseq_xl.engine.trainer import Trainer
from fairseq_xl.io.checkpoints import save_checkpoint
from fairseq_xl.io.files import replacing

logger = logging.getLogger("fairseq.checkpoint_utils")  # its name in logs, which programs read

LOOP = "fairseq_xl.engine"  # name of the training loop in its checkpoints
OF_LANGUAGE = "checkpoint_best_"  # begins the name of a language's best checkpoint
ATTEMPTS, SECONDS_BETWEEN_ATTEMPTS = 3, 2.5


def save(
    trainer: Trainer,
    epochs: iterators.EpochBatchIterating,
    selection: Selection,
    value: float | None,
    by_language: dict[str, float],
) -> None:
    """Saves the checkpoints that are due, and removes old ones. All ranks call it.

    `value` is the validation value of these weights, if any, `by_language` that of each language. Raises `UserError`
    for weights that are NaN or infinite, and leaves the last checkpoint.
    """
    divergence.check_weights(trainer)
    selection.add(value)
    languages = selection.add_languages(by_language)
    cfg = trainer.cfg.checkpoint
    if cfg.no_save:
        return
    trainer.consolidate()
    if trainer.rank:
        return
    names = [f"{OF_LANGUAGE}{code}{cfg.checkpoint_suffix}.pt" for code in languages]
    names += _names(cfg, epochs, trainer.get_num_updates(), selection, value)
    paths = [os.path.join(cfg.save_dir, name) for name in names]
    if paths and not os.path.exists(paths[-1]):
        paths.reverse()  # a run that is killed between its first ones can continue from the last one
    if paths:
        _write(trainer, epochs, selection, value, paths)
    _remove_old(cfg, epochs.end_of_epoch())


def _names(
    cfg: DictConfig, epochs: iterators.EpochBatchIterating, updates: int, selection: Selection, value: float | None
) -> list[str]:
    """The names of the checkpoints that are due, which are fairseq's."""
    suffix, epoch, ended = cfg.checkpoint_suffix, epochs.epoch, epochs.end_of_epoch()
    names = []
    if ended and not cfg.no_epoch_checkpoints and epoch % cfg.save_interval == 0:
        names.append(f"checkpoint{epoch}{suffix}.pt")
    if not ended and cfg.save_interval_updates > 0 and updates % cfg.save_interval_updates == 0:
        names.append(f"checkpoint_{epoch}_{updates}{suffix}.pt")
    if value is not None and selection.best is not None and selection.is_no_worse(value, selection.best):
        names.append(f"checkpoint_best{suffix}.pt")
    if value is not None and cfg.keep_best_checkpoints > 0:
        worst = [float(path.rpartition("_")[2].removesuffix(f"{suffix}.pt")) for path in _best_paths(cfg)[-1:]]
        if not worst or selection.is_no_worse(value, worst[0]):
            digit = np.random.default_rng((epoch, updates)).integers(cfg.keep_best_checkpoints)  # of equal values
            names.append(f"checkpoint.best_{cfg.best_checkpoint_metric}_{value:.3f}{digit}{suffix}.pt")
    if not cfg.no_last_checkpoints:
        names.append(f"checkpoint_last{suffix}.pt")
    return names


def _best_paths(cfg: DictConfig) -> list[str]:
    """The checkpoints of --keep-best-checkpoints, the best one first."""
    pattern = rf"checkpoint\.best_{re.escape(cfg.best_checkpoint_metric)}_(\d+\.?\d*){cfg.checkpoint_suffix}\.pt"
    paths: list[str] = checkpoint_paths(cfg.save_dir, pattern=pattern)  # the highest value first
    return paths if cfg.maximize_best_checkpoint_metric else paths[::-1]


def _write(
    trainer: Trainer, epochs: iterators.EpochBatchIterating, selection: Selection, value: float | None, paths: list[str]
) -> None:
    """Writes a checkpoint to the first path, and copies it to the rest; those of languages share its disk space."""
    started = time.monotonic()
    state = utils.move_to_cpu(trainer.state_dict())
    state["extra_state"] |= {
        "train_iterator": epochs.state_dict(),
        "val_loss": value,
        type(trainer.task).__name__: selection.waiting(),
        "loop": LOOP,
    }
    if selection.best is not None:
        state["extra_state"]["best"] = selection.best
    if selection.best_by_language:
        state["extra_state"]["best_by_language"] = dict(selection.best_by_language)
    persist(state, paths[0])
    for path in paths[1:]:
        (link if os.path.basename(path).startswith(OF_LANGUAGE) else copy)(paths[0], path)
    logger.info(
        "Saved checkpoint %s (epoch %d @ %d updates, score %s) (writing took %.2f seconds)",
        *(", ".join(paths), epochs.epoch, trainer.get_num_updates(), value, time.monotonic() - started),
    )


def persist(state: dict[str, Any], path: str) -> None:
    """Writes a state; retries after an error of the file system, such as one of a network."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return save_checkpoint(state, path)
        except OSError as error:
            if attempt == ATTEMPTS:
                raise
            logger.warning("could not write %s (%s), trying again", path, error)
            time.sleep(SECONDS_BETWEEN_ATTEMPTS)


def copy(source: str, target: str) -> None:
    """Copies a checkpoint, whole or not at all."""
    with open(source, "rb") as stream, replacing(target) as file:
        shutil.copyfileobj(stream, file, 1 << 20)


def link(source: str, target: str) -> None:
    """Gives a checkpoint a second name, a hard link; copies it where the file system has none."""
    temporary = f"{target}.tmp"
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        os.link(source, temporary)
        os.replace(temporary, target)
    except OSError:
        copy(source, target)


def _remove_old(cfg: DictConfig, end_of_epoch: bool) -> None:
    """Removes checkpoints beyond --keep-interval-updates, --keep-last-epochs and --keep-best-checkpoints."""
    suffix, old = cfg.checkpoint_suffix, []
    if not end_of_epoch and cfg.keep_interval_updates > 0:
        pattern, interval = rf"checkpoint_\d+_(\d+){suffix}\.pt", cfg.keep_interval_updates_pattern
        paths = checkpoint_paths(cfg.save_dir, pattern=pattern, keep_match=True)
        paths = [path for path, updates in paths if interval == -1 or updates % interval]
        old += paths[cfg.keep_interval_updates :]
    if cfg.keep_last_epochs > 0:
        old += checkpoint_paths(cfg.save_dir, pattern=rf"checkpoint(\d+){suffix}\.pt")[cfg.keep_last_epochs :]
    if cfg.keep_best_checkpoints > 0:
        old += _best_paths(cfg)[cfg.keep_best_checkpoints :]
    for path in old:
        os.remove(path)
