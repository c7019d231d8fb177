"""Patches of training in several processes: launch, rendezvous, agreement on stopping, and gradient reduction."""

import functools
import logging
import os
import re
import signal
import socket
import sys
import warnings
from datetime import timedelta

import numpy as np
import torch
from fairseq.distributed import (
    LegacyDistributedDataParallel,
    utils as distributed_utils,
)
from fairseq.models import distributed_fairseq_model
from hydra.core.hydra_config import HydraConfig
from torch.utils import _pytree as pytree

import fairseq_xl
from fairseq_xl.errors import UserError

logger = logging.getLogger(__name__)

#: environment variables that torchrun and recipes/cluster/slurm.sh set for each process
LAUNCHER = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")
#: environment variable: the exit status of a training that a signal stopped, instead of 0
STOPPED_STATUS = "XL_STOPPED_STATUS"
#: how long ranks may take to end once another one has failed
SECONDS_OF_GRACE = 30
#: how long a rank waits for the others to connect through gloo, once all ranks are in the process group
SECONDS_TO_CONNECT = 60

_stopped = False  # whether a signal ends the training in progress


def install() -> None:
    """Makes launches work with and without CUDA, and both of fairseq's wrappers with gradients that no rank has."""
    distributed_utils.call_main = _launch(distributed_utils.call_main)
    distributed_utils.distributed_init = _connect(distributed_utils.distributed_init)
    distributed_fairseq_model.DistributedDataParallel = _wrap_on_any_device(torch.nn.parallel.DistributedDataParallel)
    reduce_gradients = LegacyDistributedDataParallel.all_reduce_grads
    LegacyDistributedDataParallel.all_reduce_grads = _keep_missing_gradients(reduce_gradients)


def end_as_stopped() -> None:
    """Makes this training, which saves and returns after a signal, end with the status of `STOPPED_STATUS`."""
    global _stopped
    _stopped = True


def any_rank(flags: list[bool]) -> list[bool]:
    """Whether each of `flags` is true on any rank. All ranks must call it together; a process alone gets its own flags.

    The flags stay on the host, so that no rank waits for its device.
    """
    if distributed_utils.get_data_parallel_world_size() == 1:
        return flags
    found = np.array(flags, dtype=np.uint8)
    group = _host_group(torch.distributed.group.WORLD)
    torch.distributed.all_reduce(torch.from_numpy(found), torch.distributed.ReduceOp.MAX, group)
    return found.astype(bool).tolist()


@functools.lru_cache(maxsize=1)
def _host_group(world: torch.distributed.ProcessGroup) -> torch.distributed.ProcessGroup:
    """The group of all ranks whose collectives reduce tensors on the host; NCCL reduces tensors on GPUs only.

    Args:
        world: torch's process group, for which the group is made once. The group of an earlier one is forgotten.
    """
    group = distributed_utils.get_data_parallel_group()
    if torch.distributed.get_backend(group) == "gloo":
        return group
    # A collective waits for the slowest rank, for example while another rank saves a checkpoint. So the group keeps
    # torch's long timeout, and one with a short timeout, which is used once, finds ranks that cannot be reached.
    brief = torch.distributed.new_group(backend="gloo", timeout=timedelta(seconds=SECONDS_TO_CONNECT))
    torch.distributed.all_reduce(torch.zeros(1), group=brief)
    torch.distributed.destroy_process_group(brief)
    return torch.distributed.new_group(backend="gloo")


def _connect(original):
    """Connects the ranks of a training through gloo as soon as they are in fairseq's process group.

    A failure is one sentence on each rank, before data and model are loaded, instead of a traceback in the first
    update. If only some ranks fail, the others wait for them for at most `SECONDS_TO_CONNECT`. If the process group is
    gloo's own, they wait in torch until the launcher ends them, as `_spawn`, torchrun and recipes/cluster/slurm.sh do.
    """

    @functools.wraps(original)
    def distributed_init(cfg):
        """Joins the process group; raises `UserError` if the ranks cannot reach each other through gloo."""
        try:
            rank = original(cfg)
        except RuntimeError as error:
            if "gloo" not in str(error).lower():
                raise
            raise _unreachable(error) from error
        if cfg.optimizer is not None and not cfg.common.tpu and torch.distributed.get_world_size() > 1:
            try:
                _host_group(torch.distributed.group.WORLD)
            except RuntimeError as error:
                raise _unreachable(error) from error
        return rank

    return distributed_init


def _unreachable(error: RuntimeError) -> UserError:
    """The error of ranks that gloo cannot connect, with the reason that torch gives."""
    reason = re.sub(r"^\[enforce fail at [^\]]+\] ", "", str(error).strip().partition("\n")[0]).rstrip(". ")
    return UserError(
        f"the processes cannot reach each other through gloo ({reason}): set GLOO_SOCKET_IFNAME to the network "
        "interface that connects their machines, on one machine to lo"
    )


def _launch(original):
    """Trains in several processes, started by a launcher or here, with and without CUDA.

    Without CUDA fairseq divides by the number of GPUs, or starts as many processes as there are GPUs: none. Under
    torchrun it trains one whole model in each process where it sees at most one GPU. And a SIGTERM to the process that
    starts the others ends all of them before they save.
    """

    @functools.wraps(original)
    def call_main(cfg, main, **kwargs):
        """Runs a command in the processes that its options and its launcher ask for."""
        training = cfg.distributed_training
        on_cpu = cfg.common.cpu or not torch.cuda.is_available()
        if cfg.optimizer is None and on_cpu:
            _evaluate_alone(training)
        if cfg.optimizer is None or cfg.common.tpu or training.pipeline_model_parallel:
            return original(cfg, main, **kwargs)
        if on_cpu and training.distributed_backend == "nccl":
            training.distributed_backend = "gloo"
        if training.distributed_init_method is None:
            _set_init_method(training, on_cpu)
        global _stopped
        _stopped = False
        if training.distributed_init_method is None or training.distributed_no_spawn:
            original(cfg, main, **kwargs)
        else:
            _spawn(cfg, main, on_cpu, kwargs)
        if _stopped and os.environ.get(STOPPED_STATUS):
            sys.exit(int(os.environ[STOPPED_STATUS]))

    return call_main


def _set_init_method(training, on_cpu: bool) -> None:
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
    elif _only_counts_gpus(training):
        logger.info("--cpu: training in one process; --distributed-world-size on the command line starts several")
        training.distributed_world_size = 1
    elif training.distributed_world_size > 1:
        if int(os.environ.get("SLURM_STEP_NUM_TASKS", 1)) > 1:
            raise UserError("without CUDA, SLURM's tasks find each other through recipes/cluster/slurm.sh only")
        with socket.create_server(("localhost", 0)) as free:
            training.distributed_init_method = f"tcp://localhost:{free.getsockname()[1]}"


def _only_counts_gpus(training) -> bool:
    """Whether the number of processes is fairseq's default, the number of GPUs, also with --cpu."""
    given = any(re.match("--distributed-w|.*distributed_world_size=", argument) for argument in sys.argv[1:])
    return training.distributed_world_size == torch.cuda.device_count() > 1 and not given


def _evaluate_alone(training) -> None:
    """Evaluates in one process without CUDA; fairseq would start as many as there are GPUs: none."""
    if training.distributed_world_size > 1 and not _only_counts_gpus(training):
        count = training.distributed_world_size
        raise UserError(f"--distributed-world-size {count}: evaluation without CUDA takes one process")
    training.distributed_world_size, training.distributed_init_method = 1, None


def _spawn(cfg, main, on_cpu: bool, kwargs: dict) -> None:
    """Starts the ranks of this machine, passes SIGTERM and a first SIGINT on to them, and waits for their end."""
    training = cfg.distributed_training
    first, count = training.distributed_rank, training.distributed_world_size
    if on_cpu and first:
        raise UserError(f"--distributed-rank {first} is one process of {count}: add --distributed-no-spawn")
    training.distributed_rank = None  # fairseq counts from the first
    arguments = (main, cfg, kwargs | {"start_rank": first})
    count = count if on_cpu else min(count, torch.cuda.device_count())
    ranks = torch.multiprocessing.spawn(_rank, arguments, count, join=False)

    def pass_on(signum, frame):
        """Sends the signal to the ranks."""
        end_as_stopped()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for process in ranks.processes:
            process.terminate()  # no SIGINT: Ctrl-C reaches the ranks too, and a second one would not let them save

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGINT, pass_on)
    while not ranks.join(grace_period=SECONDS_OF_GRACE):
        pass


def _rank(number, *arguments) -> None:
    """Runs in a process that `_spawn` starts; workers of its DataLoader are forked, as in other launches.

    A spawned worker would import everything first, and a Ctrl-C would end it before it can ignore the signal.
    This function's module is imported here before fairseq sees --user-dir, which therefore registers nothing.
    """
    fairseq_xl.register()
    torch.multiprocessing.set_start_method("fork", force=True)
    distributed_utils.distributed_main(number, *arguments)


def check_processes_are_joined(cfg) -> None:
    """Refuses several processes of a command that imports the plugin too late for `_launch`: each would train alone."""
    started = int(os.environ["WORLD_SIZE"]) if all(name in os.environ for name in LAUNCHER) else 1
    if started > 1 and cfg.distributed_training.distributed_world_size == 1:
        flags = (
            f"--distributed-world-size {started} --distributed-init-method env:// --distributed-rank $RANK "
            "--distributed-no-spawn"
        )
        if HydraConfig.initialized():
            flags = "+launch=torchrun of recipes/xlm/hydra"
        raise UserError(f"{started} processes were started and this command uses one: add {flags}")


def _wrap_on_any_device(original):
    """Wraps models with pytorch_ddp on any device; fairseq always names a GPU.

    torch fails on parameters that an update leaves unused, such as the head of another objective, unless
    `find_unused_parameters` is set, with which its reducer waits for the device. `_allow_unused` does without it.
    """

    @functools.wraps(original)
    def wrapped(module, device_ids=None, output_device=None, **kwargs):
        """Wraps a module on its own device."""
        if not next(module.parameters()).is_cuda:
            device_ids = output_device = None
        may_skip = getattr(module, "may_skip_parameters", False)
        if may_skip:
            kwargs["find_unused_parameters"] = False
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
            model = original(module, device_ids=device_ids, output_device=output_device, **kwargs)
        if may_skip:
            _allow_unused(model)
        return model

    return wrapped


class _DependOn(torch.autograd.Function):
    """Returns tensors unchanged and makes them depend on parameters, to which the backward pass adds no gradient."""

    @staticmethod
    def forward(ctx, number, *tensors):
        """Returns the first `number` tensors; the others are the parameters."""
        ctx.set_materialize_grads(False)
        ctx.number_of_parameters = len(tensors) - number
        return tensors[:number]

    @staticmethod
    def backward(ctx, *gradients):
        """The gradients of the tensors, and None for each parameter."""
        return (None, *gradients, *[None] * ctx.number_of_parameters)


def _allow_unused(model: torch.nn.parallel.DistributedDataParallel) -> None:
    """Lets an update leave parameters unused, without the wait of torch's `find_unused_parameters`.

    The reducer counts the gradients of a backward pass. The outputs depend on all parameters here, so that it also
    counts those of unused parameters, which it takes for zeros. `all_reduce_grads`, which fairseq calls before the
    optimizer, sets the gradients that no rank has to None again, since Adam would change these parameters.
    """
    parameters = [parameter for parameter in model.module.parameters() if parameter.requires_grad]
    used = [False] * len(parameters)

    def mark_used(number, parameter):
        used[number] |= parameter.grad is not None  # the hook is called for unused parameters too

    def depend_on_all(_, inputs, output):
        leaves, structure = pytree.tree_flatten(output)
        numbers = [number for number, leaf in enumerate(leaves) if getattr(leaf, "requires_grad", False)]
        found = _DependOn.apply(len(numbers), *[leaves[number] for number in numbers], *parameters) if numbers else ()
        for number, leaf in zip(numbers, found, strict=True):
            leaves[number] = leaf
        return pytree.tree_unflatten(leaves, structure)

    def all_reduce_grads():
        _remove_gradients(parameters, any_rank(used))
        used[:] = [False] * len(parameters)

    for number, parameter in enumerate(parameters):
        parameter.register_post_accumulate_grad_hook(functools.partial(mark_used, number))
    model.register_forward_hook(depend_on_all)
    model.all_reduce_grads = all_reduce_grads


def _keep_missing_gradients(original):
    """Leaves the gradient of a parameter that no rank used None; with the zeros of legacy_ddp, Adam would change it."""

    @functools.wraps(original)
    def all_reduce_grads(self):
        """Averages the gradients that some rank has over all ranks."""
        if self.accumulate_grads:
            return
        parameters = [parameter for parameter in self.module.parameters() if parameter.requires_grad]
        used = any_rank([parameter.grad is not None for parameter in parameters])
        original(self)
        _remove_gradients(parameters, used)

    return all_reduce_grads


def _remove_gradients(parameters: list[torch.nn.Parameter], used: list[bool]) -> None:
    """Sets the gradients of parameters that are not used to None."""
    for parameter, is_used in zip(parameters, used, strict=True):
        if not is_used:
            parameter.grad = None
