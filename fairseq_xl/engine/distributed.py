"""What ranks exchange: flags on the host, gradients, sums of statistics."""

import functools
import re
import warnings
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from fairseq.distributed import (
    LegacyDistributedDataParallel,
    ModuleProxyWrapper,
    utils as distributed_utils,
)
from omegaconf import DictConfig
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils import _pytree as pytree

from fairseq_xl.errors import UserError

#: how long a rank waits for the others to connect through gloo, once all ranks are in the process group
SECONDS_TO_CONNECT = 60
#: values of --ddp-backend
LEGACY = ("no_c10d", "legacy_ddp")
BACKENDS = ("c10d", "pytorch_ddp", *LEGACY)


def join(cfg: DictConfig) -> None:
    """Joins the process group, whose rank it sets, and connects the ranks through gloo.

    A failure is one sentence on each rank, before data and model are loaded. If only some ranks fail, the others wait
    for them for at most `SECONDS_TO_CONNECT`. If the process group is gloo's own, they wait in torch until the launcher
    ends them.

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
            _host_group(torch.distributed.group.WORLD)
        except RuntimeError as error:
            raise _unreachable(error) from error


def _unreachable(error: RuntimeError) -> UserError:
    """The error of ranks that gloo cannot connect, with the reason that torch gives."""
    reason = re.sub(r"^\[enforce fail at [^\]]+\] ", "", str(error).strip().partition("\n")[0]).rstrip(". ")
    return UserError(
        f"the processes cannot reach each other through gloo ({reason}): set GLOO_SOCKET_IFNAME to the network "
        "interface that connects their machines, on one machine to lo"
    )


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


def wrap(model: nn.Module, cfg: DictConfig, device: torch.device) -> nn.Module:
    """The model on its device, whose gradients the ranks average as --ddp-backend says.

    Its `all_reduce_grads` ends the backward passes of an update. Gradients of parameters that no rank used become None:
    Adam would move them with a gradient of 0.
    """
    group = distributed_utils.get_data_parallel_group()
    if cfg.ddp_backend in LEGACY:
        return ModuleProxyWrapper(_LegacyDDP(model.to(device), buffer_size=2**28, process_group=group))
    devices = {"device_ids": [cfg.device_id], "output_device": cfg.device_id} if device.type == "cuda" else {}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
        wrapped = _DDP(
            model.to(device),
            **devices,
            broadcast_buffers=cfg.broadcast_buffers,
            bucket_cap_mb=cfg.bucket_cap_mb,
            process_group=group,
            gradient_as_bucket_view=cfg.gradient_as_bucket_view,
        )
    if cfg.ddp_comm_hook == "fp16":
        from torch.distributed.algorithms.ddp_comm_hooks import DDPCommHookType, register_ddp_comm_hook

        register_ddp_comm_hook(DDPCommHookType.FP16_COMPRESS, wrapped)
    return ModuleProxyWrapper(wrapped)


class _LegacyDDP(LegacyDistributedDataParallel):
    """fairseq's wrapper that averages gradients after the backward pass."""

    def all_reduce_grads(self) -> None:
        """Averages the gradients that some rank has over all ranks."""
        if self.accumulate_grads:
            return
        parameters = [parameter for parameter in self.module.parameters() if parameter.requires_grad]
        used = any_rank([parameter.grad is not None for parameter in parameters])
        super().all_reduce_grads()
        _remove_gradients(parameters, used)


class _DependOn(torch.autograd.Function):
    """Returns tensors unchanged and makes them depend on parameters, to which the backward pass adds no gradient."""

    @staticmethod
    def forward(ctx: Any, number: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Returns the first `number` tensors; the others are the parameters."""
        ctx.set_materialize_grads(False)
        ctx.number_of_parameters = len(tensors) - number
        return tensors[:number]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
        """The gradients of the tensors, and None for each parameter."""
        return (None, *gradients, *[None] * ctx.number_of_parameters)


class _DDP(DistributedDataParallel):
    """torch's wrapper; an update may leave parameters unused, without the wait of torch's `find_unused_parameters`.

    The reducer counts the gradients of a backward pass. The outputs depend on all parameters here, so that it also
    counts those of unused parameters, which it takes for zeros; `all_reduce_grads` makes them None again.
    """

    def __init__(self, module: nn.Module, **options: Any):
        super().__init__(module, **options)
        self.trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.used = [False] * len(self.trained)
        for number, parameter in enumerate(self.trained):
            parameter.register_post_accumulate_grad_hook(functools.partial(self._mark_used, number))

    def _mark_used(self, number: int, parameter: Tensor) -> None:
        self.used[number] |= parameter.grad is not None  # the hook is called for unused parameters too

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """The outputs of the module, which depend on all parameters."""
        leaves, structure = pytree.tree_flatten(super().forward(*inputs, **named))
        numbers = [number for number, leaf in enumerate(leaves) if getattr(leaf, "requires_grad", False)]
        if numbers:
            tensors = _DependOn.apply(len(numbers), *[leaves[number] for number in numbers], *self.trained)
            for number, tensor in zip(numbers, tensors, strict=True):
                leaves[number] = tensor
        return pytree.tree_unflatten(leaves, structure)

    def all_reduce_grads(self) -> None:
        """Removes the gradients that no rank has; the backward pass has averaged them."""
        _remove_gradients(self.trained, any_rank(self.used))
        self.used = [False] * len(self.trained)


def _remove_gradients(parameters: list[torch.nn.Parameter], used: list[bool]) -> None:
    """Sets the gradients of parameters that are not used to None."""
    for parameter, is_used in zip(parameters, used, strict=True):
        if not is_used:
            parameter.grad = None


def sum_over_ranks(data: Mapping[str, Any], device: torch.device) -> dict[str, Tensor]:
    """Sums numbers and tensors over ranks by one all-reduce; nothing waits for the device.

    Args:
        data: {name: a number, or a tensor on the host or on `device`}, of the same names and shapes on every rank.
        device: device of the reduction.

    Returns: {name: sum, a float64 tensor on `device`}.
    """
    values = {name: torch.as_tensor(value, dtype=torch.double) for name, value in data.items()}
    flat = {name: value.reshape(-1) for name, value in values.items()}
    sizes = {name: value.numel() for name, value in values.items()}
    on_host = [name for name, value in values.items() if value.device.type != device.type]
    if on_host:
        copied = _copy_to_device(torch.cat([flat[name] for name in on_host]), device)
        flat |= zip(on_host, copied.split([sizes[name] for name in on_host]), strict=True)
    sums = torch.cat(list(flat.values()))  # in the order of `data`, which does not depend on where the values are
    distributed_utils.all_reduce(sums, group=distributed_utils.get_data_parallel_group())
    parts = sums.split(list(sizes.values()))
    return {name: part.view(values[name].shape) for name, part in zip(values, parts, strict=True)}


def _copy_to_device(values: Tensor, device: torch.device) -> Tensor:
    """A copy for which the host does not wait: a GPU copies pinned memory only in this way."""
    return (values.pin_memory() if device.type == "cuda" else values).to(device, non_blocking=True)
