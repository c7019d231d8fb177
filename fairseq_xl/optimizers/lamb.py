"""LAMB, Adam with one step size per tensor, in proportion to the tensor's norm (You et al. 2020, algorithm 2).

Artetxe et al. 2020 pre-train with it (appendix A).
"""

from dataclasses import dataclass
from typing import List

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import register_optimizer
from omegaconf import II
from torch import Tensor

from fairseq_xl.io.options import option
from fairseq_xl.optimizers.float32_state import MultiTensorOptimizer, XLOptimizer, chunks, gradients, in_float32


@dataclass
class LambConfig(FairseqDataclass):
    """Options of `xl_lamb`; defaults are those of the paper's BERT."""

    lamb_betas: str = option("(0.9, 0.999)", "decay rates of the means of gradients and their squares")
    lamb_eps: float = option(1e-6, "added to the root of the mean squared gradient", range="0 or more")
    weight_decay: float = option(
        0.01, "weight decay of tensors with two dimensions or more, so not of biases and LayerNorms", range="0 or more"
    )
    lr: List[float] = II("optimization.lr")


class Lamb(MultiTensorOptimizer):
    """LAMB: for a tensor x with gradient g, at step t,

        m = b1 m + (1 - b1) g            v = b2 v + (1 - b2) g^2
        r = m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + decay x
        x = x - lr |x| / |r| r           where |x| and |r| are not 0, else x - lr r

    The paper's models have phi(z) = z: norms are not clamped. As in the authors' code, tensors of one dimension
    (biases, LayerNorms) have neither decay nor trust ratio. The matrices of q, k and v have one ratio each, though they
    are one parameter here. The ratios stay on the device; each is one kernel.
    """

    def update(self, parameters: list[Tensor], step: int, group: dict) -> None:
        b1, b2 = group["betas"]
        for chunk in chunks(parameters):
            grads, (means, squares) = in_float32(gradients(chunk)), self.means(chunk)
            torch._foreach_mul_(means, b1)
            torch._foreach_add_(means, grads, alpha=1 - b1)
            torch._foreach_mul_(squares, b2)
            torch._foreach_addcmul_(squares, grads, grads, value=1 - b2)
            roots = torch._foreach_div(squares, 1 - b2**step)
            torch._foreach_sqrt_(roots)
            torch._foreach_add_(roots, group["eps"])
            updates = list(torch._foreach_div(means, 1 - b1**step))
            torch._foreach_div_(updates, roots)
            weights = in_float32(chunk)
            _scale_matrices(_matrices(updates, chunk), _matrices(weights, chunk), group["weight_decay"])
            torch._foreach_mul_(updates, -group["lr"])
            torch._foreach_add_(weights, updates)
            if weights is not chunk:
                torch._foreach_copy_(chunk, weights)


def _matrices(tensors: list[Tensor], parameters: list[Tensor]) -> list[Tensor]:
    """The tensors of parameters; one that joins several `matrices`, such as those of q, k and v, as that many."""
    numbers = [getattr(parameter, "matrices", 1) for parameter in parameters]
    return [
        part for tensor, number in zip(tensors, numbers) for part in (tensor.chunk(number) if number > 1 else [tensor])
    ]


def _scale_matrices(updates: list[Tensor], weights: list[Tensor], decay: float) -> None:
    """Adds weight decay to updates with two dimensions or more, and multiplies each by its trust ratio."""
    matrices = [(update, weight) for update, weight in zip(updates, weights) if update.dim() > 1]
    if not matrices:
        return
    scaled, scaling = [update for update, _ in matrices], [weight for _, weight in matrices]
    torch._foreach_add_(scaled, scaling, alpha=decay)
    norms, lengths = torch.stack(torch._foreach_norm(scaling)), torch.stack(torch._foreach_norm(scaled))
    ratios = torch.where((norms > 0) & (lengths > 0), norms / lengths, 1.0)
    torch._foreach_mul_(scaled, list(ratios.unbind()))


@register_optimizer("xl_lamb", dataclass=LambConfig)
class XLLamb(XLOptimizer):
    """LAMB in fairseq. Parameters are not flattened in 16 bits: each tensor has its own trust ratio."""

    name, config, torch_class = "lamb", LambConfig, Lamb
