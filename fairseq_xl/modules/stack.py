"""A stack of layers in training: packed sequences, compiled layers, activation checkpointing.

Shapes: B batch, T time, S memory time, C channels.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fairseq_xl.errors import UserError
from fairseq_xl.modules.compilation import check_compiler, compiled, mark_sizes
from fairseq_xl.modules.packing import Packing


class Stack(nn.ModuleList):
    """The layers of an encoder or a decoder, one after the other; its state dict is that of a ModuleList."""

    def __init__(self, layers: Iterable[nn.Module] | None = None):
        super().__init__(layers)
        #: backend of torch.compile that compiles the layers for training; None: they are not compiled
        self.backend: str | None = None
        #: whether training stores the inputs of the layers only, and computes the rest again for the backward pass
        self.checkpoint_activations = False

    def forward(
        self,
        hidden: Tensor,
        *,
        packing: Packing | None = None,
        memory: Tensor | None = None,
        memory_packing: Packing | None = None,
        **inputs: Any,
    ) -> Tensor:
        """(B, T, C) -> (B, T, C)

        Args:
            packing: packing of `hidden`, used where it saves time: only its tokens are computed then, the others are 0
            memory: (B, S, C), keys and values of cross-attention; None skips cross-attention
            memory_packing: packing of the memory; it is packed only together with `hidden`
            inputs: further arguments of the layers, and the padding masks for what is not packed
        """
        packings = [packing] if memory is None else [packing, memory_packing]
        if packing is not None and self._packs(hidden, packings):
            inputs = {"causal": inputs.get("causal", False), "packing": packing, "memory_packing": memory_packing}
            memory = None if memory is None or memory_packing is None else memory_packing.pack(memory)
            return packing.unpack(self._run(packing.pack(hidden), memory=memory, **inputs))
        return self._run(hidden, memory=memory, **inputs)

    def _packs(self, hidden: Tensor, packings: list[Packing | None]) -> bool:
        """Whether to leave out padding of `hidden` (B, T, C) and of the memory.

        With a variable-length kernel any padding is left out, since a GPU attends more slowly under a mask of padding.
        """
        available = [packing for packing in packings if packing is not None]
        if not len(self) or len(available) < len(packings):
            return False
        dtype, device = hidden.dtype, hidden.device.type
        if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
        layer: Any = self[0]
        channels = hidden.size(-1) // layer.self_attention.heads
        return available[0].fits_varlen(dtype, channels) or any(packing.has_much_padding for packing in available)

    def _run(self, hidden: Tensor, **inputs: Any) -> Tensor:
        """(B, T, C) -> (B, T, C), or packed (N, C) -> (N, C)"""
        training = self.training and torch.is_grad_enabled()
        run = _run_layer
        if self.backend is not None and training:
            run = compiled(_run_layer, self.backend)
            mark_sizes(hidden, *inputs.values())
        for layer in self:
            if self.checkpoint_activations and training:
                hidden = checkpoint(run, layer, hidden, inputs, use_reentrant=False)
            else:
                hidden = run(layer, hidden, inputs)
        return hidden


def _run_layer(layer: Callable[..., Tensor], hidden: Tensor, inputs: dict[str, Any]) -> Tensor:
    """Runs one layer; all layers share the compiled graphs of this function."""
    return layer(hidden, **inputs)


def set_up_stacks(model: Any, cfg: Any, on_gpu: bool) -> None:
    """Sets --compile and --checkpoint-activations; `UserError` for a model without stacks, and without a compiler."""
    if not (cfg.compile or cfg.checkpoint_activations):
        return
    stacks = [module for module in model.modules() if isinstance(module, Stack)]
    if not stacks:
        name = "--compile" if cfg.compile else "--checkpoint-activations"
        raise UserError(f"{name} needs a Transformer, not {type(model).description}")
    if cfg.compile:
        check_compiler(cfg.compile_backend, on_gpu)
    for stack in stacks:
        stack.backend = cfg.compile_backend if cfg.compile else None
        stack.checkpoint_activations = cfg.checkpoint_activations
