"""Adam with decoupled weight decay (Loshchilov & Hutter 2019) in a few kernels: fairseq's `adam`, faster on a GPU."""

import math
from dataclasses import dataclass
from typing import List

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import register_optimizer
from fairseq.optim.adam import FairseqAdam
from omegaconf import II
from torch import Tensor
from torch.optim.adamw import adamw

from fairseq_xl.io.options import option
from fairseq_xl.optimizers.float32_state import MultiTensorOptimizer, XLOptimizer, chunks, gradients, in_float32

#: devices for which all supported versions of torch have a fused update; other devices run torch's foreach update
FUSED = ("cuda", "cpu", "mps", "xpu")


@dataclass
class AdamConfig(FairseqDataclass):
    """Options of `xl_adam`: those of fairseq's `adam`, with its defaults."""

    adam_betas: str = option("(0.9, 0.999)", "decay rates of the means of gradients and their squares")
    adam_eps: float = option(1e-8, "added to the root of the mean squared gradient", range="0 or more")
    weight_decay: float = option(
        0.0, "decoupled weight decay: each update subtracts this times --lr times the weight", range="0 or more"
    )
    lr: List[float] = II("optimization.lr")


class Adam(MultiTensorOptimizer):
    """Adam as fairseq's: for a parameter x with gradient g, at step t,

        m = b1 m + (1 - b1) g            v = b2 v + (1 - b2) g^2
        x = (1 - lr decay) x - lr sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + eps)

    torch's AdamW adds eps to sqrt(v / (1 - b2^t)); its kernel gets eps / sqrt(1 - b2^t), which is the same update as
    fairseq's. Parameters in 16 bits are updated through a copy in float32 that is as large as `CHUNK`.
    """

    def update(self, parameters: list[Tensor], step: int, group: dict) -> None:
        if parameters[0].dtype == torch.float32:
            self._update(parameters, parameters, gradients(parameters), step, group)
            return
        for chunk in chunks(parameters):
            weights = in_float32(chunk)
            self._update(chunk, weights, in_float32(gradients(chunk)), step, group)
            torch._foreach_copy_(chunk, weights)

    def _update(
        self, parameters: list[Tensor], weights: list[Tensor], gradients: list[Tensor], step: int, group: dict
    ) -> None:
        """Updates `weights`, the `parameters` in float32."""
        device, (b1, b2) = parameters[0].device, group["betas"]
        fused = device.type in FUSED
        # adamw counts the update in its own tensors: a fused kernel reads them on the device, others on the host
        steps = torch.full((len(parameters),), step - 1.0, device=device if fused else "cpu").unbind()
        adamw(
            weights,
            gradients,
            *self.means(parameters),
            [],
            list(steps),
            fused=fused,
            foreach=not fused,
            amsgrad=False,
            beta1=b1,
            beta2=b2,
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"] / math.sqrt(1 - b2**step),
            maximize=False,
        )


@register_optimizer("xl_adam", dataclass=AdamConfig)
class XLAdam(XLOptimizer):
    """fairseq's `adam`, with the same updates; each resumes checkpoints of the other."""

    name, config, torch_class = "adam", AdamConfig, Adam


# fairseq resumes a checkpoint only with an optimizer of the same class name
XLAdam.__name__ = FairseqAdam.__name__
