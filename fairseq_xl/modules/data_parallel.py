"""Wrappers of a model that average its gradients over processes."""

import functools
import warnings
from typing import Any

import torch
from fairseq.distributed import LegacyDistributedDataParallel, ModuleProxyWrapper, utils as distributed_utils
from omegaconf import DictConfig
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils import _pytree as pytree

from fairseq_xl.io.ranks import any_rank

#: values of --ddp-backend
LEGACY = ("no_c10d", "legacy_ddp")
BACKENDS = ("c10d", "pytorch_ddp", *LEGACY)


def wrap(model: nn.Module, cfg: DictConfig, device: torch.device) -> nn.Module:
    """Moves the model to its device, and wraps it by --ddp-backend so that the ranks average gradients.

    `all_reduce_grads` of the result ends the backward passes of an update. Gradients of parameters that no rank used
    become None: Adam would move them with a gradient of 0.
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
        """Averages over all ranks each gradient that at least one rank has."""
        if self.accumulate_grads:
            return
        parameters = [parameter for parameter in self.module.parameters() if parameter.requires_grad]
        used = any_rank([parameter.grad is not None for parameter in parameters])
        super().all_reduce_grads()
        _remove_gradients(parameters, used)


class _DependOn(torch.autograd.Function):
    """Returns tensors unchanged and makes them depend on parameters, to which the backward pass adds no gradient."""

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Returns the first `count` of `tensors`; the rest are the parameters."""
        ctx.set_materialize_grads(False)
        ctx.parameter_count = len(tensors) - count
        return tensors[:count]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
        """The gradients of the tensors, and None for each parameter."""
        return (None, *gradients, *[None] * ctx.parameter_count)


class _DDP(DistributedDataParallel):
    """torch's wrapper; an update may leave parameters unused, without the wait of torch's `find_unused_parameters`.

    torch's reducer waits for a gradient of each parameter. Here the outputs depend on all parameters, so that unused
    ones get a gradient of zeros, which `all_reduce_grads` removes.
    """

    def __init__(self, module: nn.Module, **options: Any):
        super().__init__(module, **options)
        self.trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.used = [False] * len(self.trained)
        for index, parameter in enumerate(self.trained):
            parameter.register_post_accumulate_grad_hook(functools.partial(self._mark_used, index))

    def _mark_used(self, index: int, parameter: Tensor) -> None:
        self.used[index] |= parameter.grad is not None  # the hook is called for unused parameters too

    def forward(self, *inputs: Any, **named_inputs: Any) -> Any:
        """The outputs of the module, which depend on all parameters."""
        leaves, structure = pytree.tree_flatten(super().forward(*inputs, **named_inputs))
        indices = [index for index, leaf in enumerate(leaves) if getattr(leaf, "requires_grad", False)]
        if indices:
            tensors = _DependOn.apply(len(indices), *[leaves[index] for index in indices], *self.trained)
            for index, tensor in zip(indices, tensors, strict=True):
                leaves[index] = tensor
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
