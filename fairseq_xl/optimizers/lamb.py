"""LAMB, Adam with one step size per tensor, in proportion to the tensor's norm (You et al. 2020, algorithm 2).

Artetxe et al. 2020 pre-train with it (appendix A).
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, List

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer, register_optimizer
from omegaconf import II, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fairseq_xl.errors import UserError, check_ranges


@dataclass
class LambConfig(FairseqDataclass):
    """Options of `xl_lamb`; defaults are those of the paper's BERT."""

    lamb_betas: str = field(
        default="(0.9, 0.999)", metadata={"help": "decay rates of the means of gradients and their squares"}
    )
    lamb_eps: float = field(
        default=1e-6, metadata={"help": "added to the root of the mean squared gradient", "range": "0 or more"}
    )
    weight_decay: float = field(
        default=0.01,
        metadata={
            "help": "weight decay of tensors with two dimensions or more, so not of biases and LayerNorms",
            "range": "0 or more",
        },
    )
    lr: List[float] = II("optimization.lr")


class Lamb(torch.optim.Optimizer):
    """LAMB: for a tensor x with gradient g, at step t,

        m = b1 m + (1 - b1) g            v = b2 v + (1 - b2) g^2
        r = m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + decay x
        x = x - lr |x| / |r| r           where |x| and |r| are not 0, else x - lr r

    The paper writes phi(|x|) for a norm that may be clamped, and trains its models with phi(z) = z: here nothing is
    clamped. As in the authors' code, tensors of one dimension (biases, LayerNorms) have neither decay nor trust ratio.
    Parameters without a gradient stay as they are. The state is in float32, also of parameters in 16 bits.

    Args:
        params: parameters, or groups of them, as any torch optimizer takes.
        lr: learning rate.
        betas: (b1, b2).
        eps, weight_decay: eps and decay.
    """

    supports_memory_efficient_fp16 = True  # parameters in 16 bits alone, without a copy in 32

    def __init__(self, params, lr, betas, eps, weight_decay):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        """One update; returns what `closure` does."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)
        return loss

    def _update(self, parameter, group):
        state, (b1, b2) = self.state[parameter], group["betas"]
        if not state:
            state["step"] = 0
            for name in ("exp_avg", "exp_avg_sq"):
                state[name] = torch.zeros_like(parameter, dtype=torch.float32)
        state["step"] += 1
        gradient, weights = parameter.grad.float(), parameter.float()
        mean = state["exp_avg"].lerp_(gradient, 1 - b1)
        square = state["exp_avg_sq"].mul_(b2).addcmul_(gradient, gradient, value=1 - b2)
        root = (square / (1 - b2 ** state["step"])).sqrt_().add_(group["eps"])
        update, trust = (mean / (1 - b1 ** state["step"])).div_(root), 1.0
        if parameter.dim() > 1:
            update.add_(weights, alpha=group["weight_decay"])
            norms = weights.norm(), update.norm()
            trust = torch.where((norms[0] > 0) & (norms[1] > 0), norms[0] / norms[1], 1.0)
        parameter.copy_(weights - group["lr"] * trust * update)


@register_optimizer("xl_lamb", dataclass=LambConfig)
class XLLamb(FairseqOptimizer):
    """LAMB in fairseq. Parameters are not flattened in 16 bits: each tensor has its own trust ratio."""

    def __init__(self, cfg, params):
        super().__init__(cfg)
        check_ranges(LambConfig, cfg)
        try:
            self.betas = tuple(float(beta) for beta in OmegaConf.create(f"[{cfg.lamb_betas.strip('()[] ')}]"))
        except (OmegaConfBaseException, ValueError, TypeError):
            self.betas = ()
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise UserError(
                f"--lamb-betas {cfg.lamb_betas!r}: two numbers from 0 to below 1 are needed: '(0.9, 0.999)'"
            )
        self._optimizer = Lamb(params, **self.optimizer_config)

    @property
    def optimizer_config(self) -> "dict[str, Any]":
        """Settings, which replace those in a checkpoint."""
        lr = self.cfg.lr[0] if isinstance(self.cfg.lr, Collection) else self.cfg.lr
        return {"lr": lr, "betas": self.betas, "eps": self.cfg.lamb_eps, "weight_decay": self.cfg.weight_decay}
