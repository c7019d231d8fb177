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
        return dropped(hidden, self.probability if self.training else 0.0)

    def extra_repr(self) -> str:
        """The probability, for `print(model)`."""
        return str(self.probability)


def dropped(hidden: Tensor, probability: float) -> Tensor:
    """(...) -> (...): drops values with the probability and scales up the others."""
    if probability == 0.0:
        return hidden
    if hidden.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(hidden, probability)
    return _Dropped.apply(hidden, probability)


def draw_kept(shape: Sequence[int], probability: float) -> tuple[Tensor, float]:
    """Draws on CPU which values dropout keeps.

    Each value needs sixteen random bits; one draw of torch's generator serves four values.

    Args:
        shape: any
        probability: of dropping a value, from 0 to below 1

    Returns:
        bool (shape), True where kept, and the factor that keeps the expectation
    """
    values = math.prod(shape)
    dropped_levels = min(round(probability * _LEVELS), _LEVELS - 1)  # not all levels, or the factor is infinite
    drawn = torch.empty(-(-values // 4), dtype=torch.int64).random_(-(2**63), None)
    levels = drawn.view(torch.int16)[:values].view(shape)  # uniform from -32768 to 32767
    return levels >= dropped_levels - _LEVELS // 2, _LEVELS / (_LEVELS - dropped_levels)


class _Dropped(torch.autograd.Function):
    """Dropout of a tensor of any shape; stores for the backward pass which values are kept."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, probability: float) -> Tensor:
        """Drops values of `hidden` and scales up the others."""
        kept, ctx.factor = draw_kept(hidden.shape, probability)
        ctx.save_for_backward(kept)
        return (hidden * kept).mul_(ctx.factor)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Drops the gradients of dropped values and scales up the others."""
        (kept,) = ctx.saved_tensors
        return (gradient * kept).mul_(ctx.factor), None
