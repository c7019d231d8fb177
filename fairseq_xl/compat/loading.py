"""Reading checkpoints: plain data only, nothing in a file is run, and a file that does not fit is one sentence."""

import argparse
import collections
import contextlib
import functools
import logging
import math
import os
import re
import typing

import numpy
import omegaconf
import torch
from fairseq import checkpoint_utils
from fairseq.distributed.utils import _TensorPlaceholder
from fairseq.file_io import PathManager

from fairseq_xl.compat.processes import check_that_ranks_know_each_other
from fairseq_xl.errors import UserError

try:
    from numpy._core import multiarray
except ImportError:  # numpy 1
    from numpy.core import multiarray

logger = logging.getLogger(__name__)


def install() -> None:
    """Let torch read what checkpoints hold, and fairseq only through this module."""
    torch.serialization.add_safe_globals(_safe_globals())
    _make_loading_safe()


def load_plain(path):
    """Read a file written by torch.save that holds plain data and tensors, which arrive on the CPU.

    Args:
        path: a file name, or a file open for reading in binary mode.

    Raises:
        UserError: there is no such file, it is damaged or of another kind, or it holds something that is not plain data
            (which is then not run: torch reads with ``weights_only`` and the list of :func:`install`).
    """
    if isinstance(path, (str, os.PathLike)):
        with _existing(path), open(path, "rb") as stream:
            return _load_stream(stream, os.fspath(path))
    return _load_stream(path, str(getattr(path, "name", "the checkpoint")))


def load_checkpoint(path) -> dict:
    """Read a fairseq checkpoint as it is in the file, neither upgraded nor with its options overridden.

    Args:
        path: a file name, or a file open for reading in binary mode.

    Returns:
        the checkpoint, whose "model" maps parameter names to tensors on the CPU.

    Raises:
        UserError: as in :func:`load_plain`, or the file holds no model.
    """
    return check_checkpoint(load_plain(path), getattr(path, "name", path))


def check_checkpoint(state, name) -> dict:
    """The content of the file `name` as it is, if it is that of a fairseq checkpoint; `UserError` if it isn't."""
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        raise UserError(f"{name} is not a fairseq checkpoint: it holds no model parameters under the key 'model'")
    if not state.keys() & {"optimizer_history", "best_loss"}:  # the second is how fairseq once wrote it
        raise UserError(f"{name} is not a fairseq checkpoint: it holds no 'optimizer_history'")
    return state


def _load_stream(stream, name: str):
    try:
        return torch.load(stream, map_location="cpu", weights_only=True)
    except MemoryError:
        raise
    except Exception as error:  # a damaged file ends in nearly any exception, IndexError and KeyError included
        refused = re.search(r"GLOBAL (\S+)|function (\S+)|unsupported class (\S+)", str(error))
        if refused:
            what = next(filter(None, refused.groups()))
            raise UserError(
                f"{name} was refused: it holds {what}, and a checkpoint may hold only tensors and plain data "
                "(nothing in the file was run)"
            ) from error
        raise UserError(f"{name} is not a checkpoint, or it is damaged or cut short ({_first_line(error)})") from error


def _first_line(error: Exception) -> str:
    if str(error).startswith("Weights only load failed"):  # the rest is advice to turn the check off
        return "not a file of plain data written by torch.save"
    return (str(error).splitlines() or [""])[0].split(". ")[0] or type(error).__name__


@contextlib.contextmanager
def _existing(path):
    try:
        yield
    except OSError as error:
        raise UserError(f"{os.fspath(path)} cannot be read as a checkpoint: {error.strerror or error}") from error


def _safe_globals() -> list:
    """What checkpoints hold besides tensors, containers and numbers. All of it is plain data when rebuilt."""
    config = [omegaconf.DictConfig, omegaconf.ListConfig, omegaconf.nodes.AnyNode]
    config += [omegaconf.base.ContainerMetadata, omegaconf.base.Metadata]
    broadcast = [collections.defaultdict, dict, list, int, _TensorPlaceholder, (typing.Any, "typing.Any")]
    # A file of numpy 1 names numpy.core, one of numpy 2 numpy._core, and either is read under the other.
    arrays = [
        (getattr(multiarray, name), f"numpy.{core}.multiarray.{name}")
        for core in ("core", "_core")
        for name in ("_reconstruct", "scalar")
    ]
    arrays += [numpy.ndarray, numpy.dtype]
    arrays += [kind for name, kind in vars(numpy.dtypes).items() if name.endswith("DType")]
    return [argparse.Namespace, *config, *broadcast, *arrays]


class _TorchOfCheckpoints:
    """torch as ``fairseq.checkpoint_utils`` sees it: the same, with a checked ``load`` whatever its caller asks for."""

    @staticmethod
    def load(stream, **unused):
        return load_checkpoint(stream)

    def __getattr__(self, name: str):
        return getattr(torch, name)


def _make_loading_safe() -> None:
    checkpoint_utils.torch = _TorchOfCheckpoints()
    to_cpu = checkpoint_utils.load_checkpoint_to_cpu
    ensemble = checkpoint_utils.load_model_ensemble_and_task
    resume = checkpoint_utils.load_checkpoint

    @functools.wraps(to_cpu)
    def load_checkpoint_to_cpu(path, *args, **kwargs):
        with _existing(path):
            return to_cpu(path, *args, **kwargs)

    @functools.wraps(ensemble)
    def load_model_ensemble_and_task(*args, **kwargs):
        with _mistake(OSError, "Model file not found"):
            return ensemble(*args, **kwargs)

    @functools.wraps(resume)
    def load_checkpoint_and_iterator(cfg, trainer, **kwargs):
        check_that_ranks_know_each_other(trainer.cfg)
        _check_restore_file(cfg.restore_file, trainer.checkpoint_suffix)
        no_fit = _mistake(Exception, "Cannot load model parameters")
        with _mistake(ValueError, "--finetune-from-model"), no_fit, _checked_by(trainer.task):
            state, iterator = resume(cfg, trainer, **kwargs)
        _stop_if_done(trainer)
        return state, iterator

    checkpoint_utils.load_checkpoint_to_cpu = load_checkpoint_to_cpu
    checkpoint_utils.load_model_ensemble_and_task = load_model_ensemble_and_task
    checkpoint_utils.load_checkpoint = load_checkpoint_and_iterator


@contextlib.contextmanager
def _checked_by(task):
    """Show the task each checkpoint that is read, before its weights are used: fairseq asks it afterwards, or never."""
    read = checkpoint_utils.load_checkpoint_to_cpu

    def checked(path, *args, **kwargs):
        state = read(path, *args, **kwargs)
        if hasattr(task, "check_fits"):
            task.check_fits(state, path)
        return state

    checkpoint_utils.load_checkpoint_to_cpu = checked
    try:
        yield
    finally:
        checkpoint_utils.load_checkpoint_to_cpu = read


def _stop_if_done(trainer) -> None:
    """fairseq looks at --max-update after an update only: a finished run, started again, would make one more."""
    limit = trainer.cfg.optimization.max_update
    if limit and trainer.get_num_updates() >= limit:
        logger.info("nothing to do: %d updates are made, --max-update is %d", trainer.get_num_updates(), limit)
        trainer.cfg.optimization.stop_min_lr = math.inf  # what fairseq asks before the next epoch


def _check_restore_file(restore_file: str, suffix: str) -> None:
    """fairseq trains from scratch, silently, if the file to restore is missing: right only for a run's own last one."""
    path = restore_file.replace(".pt", f"{suffix or ''}.pt")
    if os.path.basename(restore_file) != "checkpoint_last.pt" and not PathManager.isfile(path):
        raise UserError(f"--restore-file {path} does not exist")


@contextlib.contextmanager
def _mistake(kind: type, beginning: str):
    """Tell fairseq's own errors of the given kind and wording as a user's mistake."""
    try:
        yield
    except kind as error:
        if isinstance(error, UserError) or not str(error).startswith(beginning):
            raise
        raise UserError(str(error)) from error
