"""Dropout. torch draws a float for every value, which on CPU costs more than a layer's softmax, GELU and LayerNorms."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

_LEVELS = 2**16  # of a random number: probabilities are rounded to a multiple of 1 / 65536


class Dropout(nn.Module):
    """nn.Dropout, faster on CPU; its random numbers come from torch's default generator all the same."""

    def __init__(self, probability: float):
        super().__init__()
        self.probability = probability

    def forward(self, hidden: Tensor) -> Tensor:
        """(...) -> (...): values are dropped with the probability and the others scaled up; only in training."""
        return dropped(hidden, self.probability if self.training else 0.0)

    def extra_repr(self) -> str:
        """The probability, where a model is printed."""
        return str(self.probability)


def dropped(hidden: Tensor, probability: float) -> Tensor:
    """(...) -> (...): values are dropped with the probability and the others scaled up."""
    if probability == 0.0:
        return hidden
    if hidden.device.type != "cpu":
        return F.dropout(hidden, probability)
    return _Dropped.apply(hidden, probability)


def draw_kept(shape: Sequence[int], probability: float) -> tuple[Tensor, float]:
    """Which values dropout keeps, on CPU, and what they are multiplied by so that the expectation stays.

    Sixteen random bits decide on a value; one draw of torch's generator gives four of them.

    Args:
        shape: any
        probability: of dropping a value, from 0 to below 1

    Returns:
        bool (shape), the factor
    """
    values, dropped = math.prod(shape), min(round(probability * _LEVELS), _LEVELS - 1)  # all dropped has no factor
    drawn = torch.empty(-(-values // 4), dtype=torch.int64).random_(-(2**63), None)
    levels = drawn.view(torch.int16)[:values].view(shape)  # uniform from -32768 to 32767
    return levels >= dropped - _LEVELS // 2, _LEVELS / (_LEVELS - dropped)


class _Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, probability: float) -> Tensor:
        kept, ctx.factor = draw_kept(hidden.shape, probability)
        ctx.save_for_backward(kept)
        return (hidden * kept).mul_(ctx.factor)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (kept,) = ctx.saved_tensors
        return (gradient * kept).mul_(ctx.factor), None
