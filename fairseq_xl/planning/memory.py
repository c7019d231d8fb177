"""Counts the memory of an update on torch's meta device, whose tensors have shapes and no values.

Every tensor that an operator returns is counted from its allocation until it is freed, so the count follows whatever
the code does: checkpointed activations, chunks of a loss, the temporary tensors of an optimizer. Only tensors are
counted; a GPU also holds its CUDA context, and memory that the allocator rounds up or keeps.
"""

import functools
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

aten = torch.ops.aten
#: operator -> its number of floating-point operations
_FLOPS = flop_registry | {aten.addmm_: flop_registry[aten.addmm]}


class MemoryCount(TorchDispatchMode):
    """Context that counts the bytes of meta tensors by part, and floating-point operations (`flops`).

    Parts are "weights", "master_weights" (FP32 master weights and their gradients), "gradients", "activations", "loss",
    "optimizer" and "temporary"; `part` is that of tensors allocated from now on. `bytes` are those at present, by part,
    `largest` the most at a time; `peak` is the most of all parts together.
    """

    def __init__(self) -> None:
        super().__init__()
        self.part = "weights"
        self.bytes: Counter[str] = Counter()
        self.largest: Counter[str] = Counter()
        self.total = self.peak = self.peak_without_gradients = self.flops = 0
        self._live: dict[int, tuple[Any, int, str]] = {}  # address of a storage: reference to it, bytes, part

    def forget_peaks(self) -> None:
        """Sets `peak`, `peak_without_gradients` and `largest` to the present bytes."""
        self.peak, self.largest = self.total, Counter(self.bytes)
        self.peak_without_gradients = self.total - self.bytes["gradients"]

    def move(self, tensors: Iterable[Tensor], part: str) -> None:
        """Counts the storages of tensors as `part` from now on."""
        for tensor in tensors:
            key = tensor.untyped_storage()._cdata
            reference, size, before = self._live[key]
            self._live[key] = reference, size, part
            self._add(before, -size)
            self._add(part, size)

    @contextmanager
    def as_part(self, part: str) -> Iterator[None]:
        """Context in which new tensors belong to `part`."""
        before, self.part = self.part, part
        try:
            yield
        finally:
            self.part = before

    def _add(self, part: str, size: int) -> None:
        self.bytes[part] += size
        self.total += size
        self.largest[part] = max(self.largest[part], self.bytes[part])
        self.peak = max(self.peak, self.total)
        self.peak_without_gradients = max(self.peak_without_gradients, self.total - self.bytes["gradients"])

    def _count(self, tensor: Tensor) -> None:
        if tensor.layout != torch.strided:
            for part in (tensor._indices(), tensor._values()):
                self._count(part)
            return
        storage = tensor.untyped_storage()
        key = storage._cdata
        if tensor.device.type != "meta" or key in self._live:
            return
        size, live = storage.nbytes(), self._live

        def freed(_: Any) -> None:
            _, size, part = live.pop(key)
            self._add(part, -size)

        live[key] = weakref.ref(storage, freed), size, self.part
        self._add(self.part, size)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs an operator, or a stand-in for one that needs values, and counts what it allocates."""
        kwargs, stand_in = kwargs or {}, _STAND_INS.get(func)
        result = stand_in(*args, **kwargs) if stand_in is not None else NotImplemented
        if result is NotImplemented:
            result = func(*args, **kwargs)
        if func.overloadpacket in _FLOPS:
            self.flops += _FLOPS[func.overloadpacket](*args, **kwargs, out_val=result)
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._count(tensor)
        return result


def _select(tensor: Tensor, indices: list[Tensor | None]) -> Any:
    """Rows that a mask selects, here all of them: the gradient of embeddings leaves out padding in this way."""
    if len(indices) != 1 or indices[0] is None or indices[0].dtype != torch.bool:
        return NotImplemented
    return tensor.new_empty((indices[0].numel(), *tensor.shape[indices[0].dim() :]))


def _to_dense(tensor: Tensor, *args: Any, **options: Any) -> Tensor:
    """A sparse tensor as a dense one."""
    return tensor._values().new_empty(tensor.shape)


def _to_meta(tensor: Tensor, *, device: Any = None, **options: Any) -> Any:
    """A copy on the meta device where fairseq copies to the CPU, for the norm of gradients."""
    if tensor.device.type != "meta" or device is None or torch.device(device).type == "meta":
        return NotImplemented
    return aten._to_copy.default(tensor, **options)


#: operators that need values -> stand-ins, which return NotImplemented for arguments that need none
_STAND_INS: dict[Any, Callable] = {
    aten.index.Tensor: _select,
    aten._to_dense.default: _to_dense,
    aten._to_copy.default: _to_meta,
}


@contextmanager
def cuda_kernels() -> Iterator[None]:
    """Context in which attention and dropout on the meta device allocate as CUDA's kernels do.

    Attention is fused: flash attention without a mask and in 16 bits, else the memory-efficient kernel. Dropout stores
    a byte for each value. Values read from tensors are 1, and comparisons false.
    """
    kernels: dict[str, Any] = {"scaled_dot_product_attention": _attention, "dropout": _dropout}
    values: dict[str, Any] = {"__int__": lambda _: 1, "__bool__": lambda _: False}
    values |= dict.fromkeys(("item", "__float__"), lambda _: 1.0)
    with mock.patch.multiple(F, **kernels), mock.patch.multiple(Tensor, **values):
        yield


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **options: Any,
) -> Tensor:
    """Fused attention of query (B, H, T, D), key and value (B, H, S, D), as CUDA chooses the kernel: (B, H, T, D)."""
    if attn_mask is None and query.dtype in (torch.float16, torch.bfloat16):
        return aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal)[0]
    bias = None
    if attn_mask is not None:
        bias = query.new_empty(attn_mask.shape).expand(*query.shape[:3], key.size(2))
    with_gradient = any(tensor.requires_grad for tensor in (query, key, value))
    args = query, key, value, bias, with_gradient, dropout_p, is_causal
    return aten._scaled_dot_product_efficient_attention(*args)[0]


def _dropout(hidden: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Dropout with the kernel of CUDA: (...) -> (...)"""
    return torch.native_dropout(hidden, p, True)[0] if training and p > 0 else hidden


def count_as_loss(count: MemoryCount, owner: Any, name: str) -> None:
    """Counts what the method `name` of an object allocates as "loss", in the forward and in the backward pass.

    In the backward pass these are the allocations between the gradient of the first tensor that the method returns and
    that of its first tensor argument with a gradient.
    """
    method = getattr(owner, name)

    @functools.wraps(method)
    def counted(*args: Any, **kwargs: Any) -> Any:
        with count.as_part("loss"):
            result = method(*args, **kwargs)
        inputs, outputs = (
            [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor) and leaf.requires_grad]
            for tree in ((args, kwargs), result)
        )
        if outputs and inputs and not any(outputs[0] is tensor for tensor in inputs):
            outputs[0].register_hook(lambda _: setattr(count, "part", "loss"))
            inputs[0].register_hook(lambda _: setattr(count, "part", "temporary"))
        return result

    setattr(owner, name, counted)


def count_gradients(count: MemoryCount, model: nn.Module) -> None:
    """Counts the gradient of a parameter as "gradients" once the backward pass has computed it."""

    def computed(parameter: Tensor) -> None:
        count.move([parameter.grad] if parameter.grad is not None else [], "gradients")

    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(computed)
