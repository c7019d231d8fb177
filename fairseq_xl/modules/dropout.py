"""Faster dropout on CPU, where a random float per value takes longer than a layer's softmax, GELU and LayerNorms."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

_LEVELS = 2**16  # values of a random number: probabilities are rounded to a multiple of 1 / 65536


class Dropout(nn.Module):
    """nn.Dropout, faster on CPU; its random numbers come from torch's default generator too."""

    def __init__(self, probability: float):
        super().__init__()
        self.probability = probability

    def forward(self, hidden: Tensor) -> Tensor:
        """(...) -> (...): drops values in training and scales up the others."""
        return drop_values(hidden, self.probability if self.training else 0.0)

    def extra_repr(self) -> str:
        return str(self.probability)


def drop_values(hidden: Tensor, probability: float) -> Tensor:
    """(...) -> (...): drops values with the probability and scales up the others."""
    if probability == 0.0:
        return hidden
    if hidden.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(hidden, probability)
    return _Dropped.apply(hidden, probability)


def draw_keep_mask(shape: Sequence[int], probability: float) -> tuple[Tensor, float]:
    """Draws on CPU which values dropout keeps, with sixteen random bits per value: one draw serves four values.

    Returns bool (shape), False where a value is dropped with a probability below 1, and the factor that preserves the
    expectation.
    """
    values = math.prod(shape)
    dropped_levels = min(round(probability * _LEVELS), _LEVELS - 1)  # not all levels, or the factor is infinite
    bits = torch.empty(-(-values // 4), dtype=torch.int64).random_(-(2**63), None)
    levels = bits.view(torch.int16)[:values].view(shape)  # uniform from -32768 to 32767
    return levels >= dropped_levels - _LEVELS // 2, _LEVELS / (_LEVELS - dropped_levels)


class _Dropped(torch.autograd.Function):
    """Dropout of a tensor of any shape; stores its mask for the backward pass."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, probability: float) -> Tensor:
        keep_mask, ctx.factor = draw_keep_mask(hidden.shape, probability)
        ctx.save_for_backward(keep_mask)
        return (hidden * keep_mask).mul_(ctx.factor)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (keep_mask,) = ctx.saved_tensors
        return (gradient * keep_mask).mul_(ctx.factor), None
