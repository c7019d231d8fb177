"""Starts a training in one or several processes, by its options and its launcher, with and without CUDA."""

import contextlib
import logging
import os
import re
import signal
import socket
import sys
from pathlib import Path
from types import FrameType

import torch
from fairseq.distributed import utils as distributed_utils
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig
from torch.multiprocessing.spawn import spawn

import fairseq_xl
from fairseq_xl.errors import UserError
from fairseq_xl.io.ranks import host_group
from fairseq_xl.io.signals import stops_handled_by

logger = logging.getLogger(__name__)

#: environment variables that torchrun and recipes/cluster/slurm.sh set for each process
LAUNCHER = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")
#: exit status of a training that a signal stopped: what follows it in a script does not run
STOPPED = os.EX_TEMPFAIL
#: file in --save-dir that marks a training as stopped by a signal: scripts do not see its exit status behind a launcher
MARK = ".stopped"
#: time that ranks have to end after another one has failed
SECONDS_OF_GRACE = 30


def train(cfg: DictConfig) -> None:
    """Trains in this process, as one of several of a launcher, or in new processes.

    If a signal ended the training, the exit status is `STOPPED`; 0 for a launcher, which would restart it or report a
    failure, and for a sweep of hydra. With a launcher --save-dir then gets the file `MARK`.
    """
    if HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN:  # a job of a sweep
        cfg.checkpoint.save_dir = HydraConfig.get().runtime.output_dir
    training, mark = cfg.distributed_training, Path(cfg.checkpoint.save_dir, MARK)
    with contextlib.suppress(OSError):  # of a run before
        mark.unlink()
    on_cpu = cfg.common.cpu or not torch.cuda.is_available()
    if on_cpu and training.distributed_backend == "nccl":
        training.distributed_backend = "gloo"
    if training.distributed_init_method is None:
        _set_init_method(training, on_cpu)
    if training.distributed_init_method is None:
        stopped = _main(cfg)
    elif training.distributed_no_spawn:
        stopped = _run_rank(cfg, training.device_id)
    else:
        stopped = _spawn(cfg, on_cpu)
    if stopped and "WORLD_SIZE" in os.environ:
        mark.touch()
    elif stopped and not HydraConfig.initialized():
        sys.exit(STOPPED)


def join(cfg: DictConfig) -> None:
    """Joins the process group, sets the rank, and connects the ranks through gloo.

    A failure is one sentence on each rank, before data and model are loaded. If only some ranks fail, the others wait
    at most `io.ranks.SECONDS_TO_CONNECT`; with the backend gloo they wait until the launcher ends them.

    Raises `UserError` if the ranks cannot reach each other through gloo.
    """
    training = cfg.distributed_training
    try:
        training.distributed_rank = distributed_utils.distributed_init(cfg)
    except RuntimeError as error:
        if "gloo" not in str(error).lower():
            raise
        raise _unreachable(error) from error
    if torch.distributed.get_world_size() > 1:
        try:
            host_group(torch.distributed.group.WORLD)
        except RuntimeError as error:
            raise _unreachable(error) from error


def _unreachable(error: RuntimeError) -> UserError:
    """The error of ranks that gloo cannot connect, with torch's reason."""
    reason = re.sub(r"^\[enforce fail at [^\]]+\] ", "", str(error).strip().partition("\n")[0]).rstrip(". ")
    return UserError(
        f"the processes cannot reach each other through gloo ({reason}): set GLOO_SOCKET_IFNAME to the network "
        "interface that connects their machines, on one machine to lo"
    )


def _main(cfg: DictConfig) -> bool:
    """Trains; returns whether a signal ended the training, whose last checkpoint is saved."""
    from fairseq_xl.engine.main import main  # evaluations need none of it

    return main(cfg).stopping.requested


def _run_rank(cfg: DictConfig, device: int) -> bool:
    """Trains as one of several processes; returns whether a signal ended the training."""
    cfg.distributed_training.device_id = device
    if torch.cuda.is_available() and not cfg.common.cpu:
        torch.cuda.set_device(device)
    join(cfg)
    stopped = _main(cfg)
    torch.distributed.barrier(distributed_utils.get_global_group())
    return stopped


def _spawn(cfg: DictConfig, on_cpu: bool) -> bool:
    """Starts this machine's ranks, passes SIGTERM and a first SIGINT on, and waits; returns whether one came."""
    training = cfg.distributed_training
    first, count = training.distributed_rank, training.distributed_world_size
    if on_cpu and first:
        raise UserError(f"--distributed-rank {first} is one process of {count}: add --distributed-no-spawn")
    count = count if on_cpu else min(count, torch.cuda.device_count())
    ranks = spawn(_run_spawned, (cfg, first), count, join=False)
    stopped = False

    def pass_on(signal_number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for process in ranks.processes:
            process.terminate()  # no SIGINT: Ctrl-C reaches the ranks too, and a second one would not let them save

    with stops_handled_by(pass_on):
        while not ranks.join(grace_period=SECONDS_OF_GRACE):
            pass
    return stopped


def _run_spawned(local_rank: int, cfg: DictConfig, first: int) -> None:
    """Trains in a process that `_spawn` starts; workers of its DataLoader are forked, as in other launches.

    A spawned worker would import everything first, and a Ctrl-C would end it before it can ignore the signal.
    """
    fairseq_xl.register()
    torch.multiprocessing.set_start_method("fork", force=True)
    cfg.distributed_training.distributed_rank = first + local_rank
    _run_rank(cfg, local_rank)


def _set_init_method(training: DictConfig, on_cpu: bool) -> None:
    """Sets distributed_init_method, from the launcher's environment or for this machine; None for one process."""
    gpus = torch.cuda.device_count()
    if all(name in os.environ for name in LAUNCHER):
        training.distributed_world_size, training.distributed_rank = (int(os.environ[key]) for key in LAUNCHER[2:])
        if training.distributed_world_size > 1:
            training.distributed_init_method, training.distributed_no_spawn = "env://", True
            # one GPU per process, also where each process sees only one
            local = int(os.environ.get("LOCAL_RANK", training.distributed_rank))
            training.device_id = 0 if on_cpu else local % gpus
    elif not on_cpu:
        distributed_utils.infer_init_method(training)
    elif only_counts_gpus(training):
        logger.info("--cpu: training in one process; --distributed-world-size on the command line starts several")
        training.distributed_world_size = 1
    elif training.distributed_world_size > 1:
        if int(os.environ.get("SLURM_STEP_NUM_TASKS", 1)) > 1:
            raise UserError("without CUDA, SLURM's tasks find each other through recipes/cluster/slurm.sh only")
        with socket.create_server(("localhost", 0)) as free:
            training.distributed_init_method = f"tcp://localhost:{free.getsockname()[1]}"


def only_counts_gpus(training: DictConfig) -> bool:
    """Whether the number of processes is fairseq's default, the number of GPUs, also with --cpu."""
    if not HydraConfig.initialized():  # `patches.command_line` sets it
        return False
    is_set = any("distributed_world_size=" in override for override in HydraConfig.get().overrides.task)
    return bool(training.distributed_world_size == torch.cuda.device_count() > 1 and not is_set)
