"""What depends on the installed fairseq, torch and numpy: the only module that knows which they are.

:func:`install` is called once, when the plugin is imported. It makes fairseq's checkpoints safe to read (plain data
only, nothing in the file is run), safe to write (whole or not at all), and a user's mistake one sentence long.
"""

import argparse
import collections
import contextlib
import errno
import functools
import importlib.metadata
import logging
import math
import os
import platform
import re
import shutil
import signal
import socket
import sys
import time
import typing
import warnings

import numpy
import omegaconf
import torch
from fairseq import checkpoint_utils
from fairseq.distributed import LegacyDistributedDataParallel, utils as distributed_utils
from fairseq.distributed.utils import _TensorPlaceholder
from fairseq.file_io import PathManager
from fairseq.logging import progress_bar
from fairseq.models import distributed_fairseq_model

from fairseq_xl.errors import UserError

try:
    from numpy._core import multiarray
except ImportError:  # numpy 1
    from numpy.core import multiarray

logger = logging.getLogger(__name__)

#: torch's loss that never holds all logits; new in torch 2.13
HAS_LINEAR_CROSS_ENTROPY = hasattr(torch.nn.functional, "linear_cross_entropy")

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
SAVE_ATTEMPTS = 3
SECONDS_BETWEEN_ATTEMPTS = 2.5

#: what torchrun, and recipes/cluster/slurm.sh, tell each process
LAUNCHER = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")
#: how long ranks may take to end once another one has failed
SECONDS_OF_GRACE = 30


@functools.lru_cache(maxsize=None)
def install() -> None:
    """Adapt fairseq, torch and the interpreter to this package. A second call changes nothing."""
    torch.serialization.add_safe_globals(_safe_globals())
    _make_loading_safe()
    PathManager.copy = staticmethod(_copying_in_one_step(PathManager.copy))
    checkpoint_utils.torch_persistent_save = _saving_in_one_step(checkpoint_utils.torch_persistent_save)
    progress_bar.progress_bar = _logging_once(progress_bar.progress_bar)
    distributed_utils.call_main = _launching(distributed_utils.call_main)
    distributed_fairseq_model.DistributedDataParallel = _on_any_device(torch.nn.parallel.DistributedDataParallel)
    reduce_gradients = LegacyDistributedDataParallel.all_reduce_grads
    LegacyDistributedDataParallel.all_reduce_grads = _leaving_out_missing_gradients(reduce_gradients)
    sys.excepthook = _showing_mistakes(sys.excepthook)
    # fairseq asks for pinned memory and for the old name of autocast whatever the machine: nothing a user could change
    warnings.filterwarnings("ignore", message=".*pin_memory.*no accelerator")
    warnings.filterwarnings("ignore", message=".*torch.cuda.amp.autocast", category=FutureWarning)


def versions() -> dict:
    """Versions of Python and of the packages that results depend on, for manifests and results.

    Returns:
        name to version; None for a package that is not installed.
    """
    found = {"python": platform.python_version()}
    for name in ("fairseq", "torch", "numpy", "sentencepiece", "sacrebleu", "sacremoses"):
        found[name] = None
        for distribution in (name, f"{name}-fixed"):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                found[name] = importlib.metadata.version(distribution)
    return found


# Reading


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
    state = load_plain(path)
    name = getattr(path, "name", path)
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
        _check_that_ranks_know_each_other(trainer.cfg)
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


# Writing


@contextlib.contextmanager
def replacing(path):
    """Open a file for binary writing that takes the place of ``path`` at the end, whole, or not at all.

    Args:
        path: a local file name; ``path`` + ".tmp" is written beside it.

    Raises:
        UserError: no room on the disk; what ``path`` held is kept.
    """
    path = os.fspath(path)
    temporary = f"{path}.tmp"
    try:
        with open(temporary, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
        _sync_folder(os.path.dirname(path) or ".")
    except Exception as error:
        if not _no_room(error):
            raise
        kept = " and the previous file is kept" if os.path.exists(path) else ""
        raise UserError(f"{path} was not written{kept}: no room is left on its disk") from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def save_checkpoint(state, path) -> None:
    """Write a checkpoint with torch.save, whole or not at all.

    Args:
        state: plain data and tensors.
        path: a local file name.

    Raises:
        UserError: no room on the disk; what ``path`` held is kept.
    """
    with replacing(path) as stream:
        torch.save(state, stream)


def _sync_folder(folder: str) -> None:
    with contextlib.suppress(OSError):  # some file systems cannot sync a folder; the rename is atomic all the same
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _no_room(error) -> bool:
    """torch's writer fails a second time while it closes the file, and hides the first error in the context."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            return True
        error = error.__cause__ or error.__context__
    return False


def _copying_in_one_step(original):
    """checkpoint_best and checkpoint_last are copies: a kill in the middle of one must not truncate it."""

    @functools.wraps(original)
    def copy(src_path, dst_path, overwrite=False):
        if not PathManager.supports_rename(dst_path) or not PathManager.supports_rename(src_path):
            return original(src_path, dst_path, overwrite=overwrite)
        with open(src_path, "rb") as source, replacing(dst_path) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        return dst_path

    return copy


def _saving_in_one_step(original):
    """fairseq renames, but does not sync, and tries again on a file that is already half written."""

    @functools.wraps(original)
    def torch_persistent_save(obj, filename, async_write=False):
        if async_write or not PathManager.supports_rename(filename):
            return original(obj, filename, async_write=async_write)
        for attempt in range(1, SAVE_ATTEMPTS + 1):
            try:
                return save_checkpoint(obj, filename)
            except OSError as error:
                if attempt == SAVE_ATTEMPTS:
                    raise
                logger.warning("could not write %s (%s), trying again", filename, error)
                time.sleep(SECONDS_BETWEEN_ATTEMPTS)

    return torch_persistent_save


# Several processes


def any_rank(flag: bool, device) -> bool:
    """Whether `flag` is true on any rank. All ranks must call it together; a process alone gets its own flag.

    Args:
        flag: this rank's.
        device: where tensors are that the ranks' backend can reduce.
    """
    group = distributed_utils.get_data_parallel_group()
    if group is None or distributed_utils.get_world_size(group) == 1:
        return flag
    flags = torch.tensor([int(flag)], device=device)
    distributed_utils.all_reduce(flags, group)
    return bool(flags.item())


def _launching(original):
    """Training in several processes, started by a launcher or here, with and without CUDA.

    Without CUDA fairseq divides by the number of GPUs, or starts as many processes as there are GPUs: none. Under
    torchrun it trains one whole model in each process where it sees at most one GPU. And a SIGTERM to the process that
    starts the others ends all of them before they save.
    """

    @functools.wraps(original)
    def call_main(cfg, main, **kwargs):
        training = cfg.distributed_training
        if cfg.optimizer is None or cfg.common.tpu or training.pipeline_model_parallel:  # the first: evaluation
            return original(cfg, main, **kwargs)
        on_cpu = cfg.common.cpu or not torch.cuda.is_available()
        if on_cpu and training.distributed_backend == "nccl":
            training.distributed_backend = "gloo"
        if training.distributed_init_method is None:
            _find_the_others(training, on_cpu)
        if training.distributed_init_method is None or training.distributed_no_spawn:
            return original(cfg, main, **kwargs)
        _spawn(cfg, main, on_cpu, kwargs)

    return call_main


def _find_the_others(training, on_cpu: bool) -> None:
    """Sets how ranks meet, or leaves it None for one process: from the launcher's environment, or on this machine."""
    gpus = torch.cuda.device_count()
    if all(name in os.environ for name in LAUNCHER):
        training.distributed_world_size, training.distributed_rank = (int(os.environ[key]) for key in LAUNCHER[2:])
        if training.distributed_world_size > 1:
            training.distributed_init_method, training.distributed_no_spawn = "env://", True
            # a GPU each, also where every process is shown one GPU only
            local = int(os.environ.get("LOCAL_RANK", training.distributed_rank))
            training.device_id = 0 if on_cpu else local % gpus
    elif not on_cpu:
        distributed_utils.infer_init_method(training)
    elif training.distributed_world_size == gpus:  # fairseq's default, which does not look at --cpu
        training.distributed_world_size = 1
    elif training.distributed_world_size > 1:
        if int(os.environ.get("SLURM_STEP_NUM_TASKS", 1)) > 1:
            raise UserError("without CUDA, SLURM's tasks find each other through recipes/cluster/slurm.sh only")
        with socket.create_server(("localhost", 0)) as free:
            training.distributed_init_method = f"tcp://localhost:{free.getsockname()[1]}"


def _spawn(cfg, main, on_cpu: bool, kwargs: dict) -> None:
    """Start this machine's ranks, hand SIGTERM on to them, and wait for their end."""
    training = cfg.distributed_training
    first, count = training.distributed_rank, training.distributed_world_size
    if on_cpu and first:
        raise UserError(f"--distributed-rank {first} is one process of {count}: add --distributed-no-spawn")
    training.distributed_rank = None  # fairseq counts from the first
    arguments = (main, cfg, kwargs | {"start_rank": first})
    count = count if on_cpu else min(count, torch.cuda.device_count())
    ranks = torch.multiprocessing.spawn(distributed_utils.distributed_main, arguments, count, join=False)

    def hand_on(signum, frame):
        for process in ranks.processes:
            process.terminate()

    signal.signal(signal.SIGTERM, hand_on)
    while not ranks.join(grace_period=SECONDS_OF_GRACE):
        pass


def _check_that_ranks_know_each_other(cfg) -> None:
    """A command that imports the plugin too late for `_launching` would train a whole model in every process."""
    started = int(os.environ["WORLD_SIZE"]) if all(name in os.environ for name in LAUNCHER) else 1
    if started > 1 and cfg.distributed_training.distributed_world_size == 1:
        raise UserError(
            f"{started} processes were started and this command uses one: add --distributed-world-size {started} "
            "--distributed-init-method env:// --distributed-rank $RANK --distributed-no-spawn"
        )


def _on_any_device(original):
    """pytorch_ddp: fairseq always names a GPU."""

    @functools.wraps(original)
    def wrapped(module, device_ids=None, output_device=None, **kwargs):
        if not next(module.parameters()).is_cuda:
            device_ids = output_device = None
        return original(module, device_ids=device_ids, output_device=output_device, **kwargs)

    return wrapped


def _leaving_out_missing_gradients(original):
    """legacy_ddp: a parameter that no rank used has no gradient; fairseq gives it zeros, with which Adam moves it."""

    @functools.wraps(original)
    def all_reduce_grads(self):
        if self.accumulate_grads:
            return
        parameters = [parameter for parameter in self.module.parameters() if parameter.requires_grad]
        used = [parameter.grad is not None for parameter in parameters]
        used = torch.tensor(used, dtype=torch.int32, device=parameters[0].device)
        distributed_utils.all_reduce(used, self.process_group)
        original(self)
        for parameter, ranks in zip(parameters, used.tolist()):
            if not ranks:
                parameter.grad = None

    return all_reduce_grads


# Early stopping


def _early_stopping_functions() -> list:
    """fairseq keeps the state on its function; `python -m fairseq_cli.train` runs another one than an import gives."""
    modules = [sys.modules.get(name) for name in ("__main__", "fairseq_cli.train")]
    return [module.should_stop_early for module in modules if hasattr(module, "should_stop_early")]


def early_stopping() -> dict:
    """The best value that --patience compares with and how many validations it has waited, as far as there are any."""
    state = {}
    for function in _early_stopping_functions():
        state |= {name: getattr(function, name) for name in ("best", "num_runs") if hasattr(function, name)}
    return state


def restore_early_stopping(state: dict) -> None:
    """Put back what `early_stopping` returned."""
    for function in _early_stopping_functions():
        vars(function).update(state)


# Logging


def _logging_once(original):
    """fairseq opens ``--log-file`` anew for every epoch and validation, and then writes every entry once for each."""

    @functools.wraps(original)
    def bar(*args, log_file=None, **kwargs):
        opened = {getattr(handler, "baseFilename", None) for handler in progress_bar.logger.handlers}
        if log_file is not None and os.path.abspath(log_file) in opened:
            log_file = None
        return original(*args, log_file=log_file, **kwargs)

    return bar


# Errors


def _showing_mistakes(previous):
    """An excepthook that shows a user's mistake in one sentence; the interpreter then exits with status 1."""

    def show(kind, error, trace):
        sentence = _sentence(error)
        if sentence is None:
            previous(kind, error, trace)
        else:
            sys.stderr.write(f"fairseq_xl: error: {sentence}\n")

    return show


def _sentence(error) -> "str | None":
    while error is not None and not isinstance(error, torch.multiprocessing.ProcessRaisedException):
        if isinstance(error, UserError):
            return str(error)
        error = error.__cause__ or error.__context__  # fairseq wraps what goes wrong while weights are loaded
    # a rank's error carries its traceback as text
    told = re.search(rf"^{UserError.__module__}\.{UserError.__name__}: (.*)$", str(error), re.MULTILINE)
    return told and told.group(1)
