"""Patches that keep the loss scale of --fp16 and --amp on the device: an update does not wait for overflow."""

import contextlib
import copy
import functools
import logging
import math
from collections.abc import Callable
from typing import Any

import torch
from fairseq.optim import AMPOptimizer, FP16Optimizer, fp16_optimizer
from fairseq.optim.dynamic_loss_scaler import DynamicLossScaler
from torch import Tensor

logger = logging.getLogger(__name__)


def install() -> None:
    """Keeps the loss scale on the device if the optimizer can skip updates there."""
    for optimizer in (FP16Optimizer, AMPOptimizer):
        optimizer.build_optimizer = classmethod(_with_deferred_scaler(optimizer.build_optimizer.__func__))
        optimizer.clip_grad_norm = _clip_on_device(optimizer.clip_grad_norm)
    mixin = fp16_optimizer._FP16OptimizerMixin
    mixin.zero_grad = _unscale_on_device(mixin.zero_grad)


class DeferredLossScaler(DynamicLossScaler):
    """fairseq's loss scaler with the scale on the device; the host learns of overflows one update later.

    During an update the host computes the two possible next scales, and the device selects one. `loss_scale` and
    fairseq's other attributes are as of the last update passed to `record_overflow`.

    Attributes:
        on_device: the scale of the next update, a float32 scalar on the device of the loss; None: `loss_scale`.
    """

    def __init__(self, scaler: DynamicLossScaler):
        """Copies the state of `scaler`."""
        self.__dict__.update(vars(scaler))
        self.on_device: Tensor | None = None

    def current(self, device: torch.device) -> Tensor:
        """The scale of the next update, a float32 scalar on `device`."""
        if self.on_device is None:
            self.on_device = torch.full((), self.loss_scale, dtype=torch.float32, device=device)
        return self.on_device

    def scale(self, outputs: Tensor) -> Tensor:
        """Multiplies a loss () by the scale; keeps its type."""
        return (outputs.float() * self.current(outputs.device)).to(outputs.dtype)

    def set_next_scale(self, skipped: Tensor) -> None:
        """Sets the next update's scale, after an overflow if `skipped`, a boolean scalar on the device, is true."""
        kept, lowered = copy.copy(self), copy.copy(self)
        DynamicLossScaler.update(kept)
        with contextlib.suppress(OverflowError, FloatingPointError):
            lowered.check_overflow(math.inf)
        self.on_device = torch.where(skipped, lowered.loss_scale, kept.loss_scale).to(torch.float32)

    def record_overflow(self, overflow: bool) -> None:
        """Updates the host's copy of the scale by fairseq's rule.

        Raises FloatingPointError if the lowered scale would be at or below --min-loss-scale.
        """
        if not overflow:
            super().update()
            return
        try:
            self.check_overflow(math.inf)
        except OverflowError as error:
            logger.info("NOTE: gradient overflow detected, ignoring gradient, %s", error)

    def update(self) -> None:
        """Does nothing: fairseq calls this in each update, before overflow is known."""

    def step(self, optimizer: Any) -> None:
        """Runs the step of --amp; the optimizer skips it on the device."""
        optimizer.step()

    def get_scale(self) -> float:
        """The scale that is logged with --amp."""
        scale: float = self.loss_scale
        return scale


def _with_deferred_scaler(original: Callable) -> Callable:
    @functools.wraps(original)
    def build_optimizer(cls: Any, cfg: Any, params: Any, **kwargs: Any) -> Any:
        """Builds the optimizer, with `DeferredLossScaler` if it has a loss scale and can skip updates on its device."""
        built = original(cls, cfg, params, **kwargs)
        keeps_fairseqs_scaler = cfg.optimization.use_bmuf or cfg.distributed_training.ddp_backend == "slowmo"
        if keeps_fairseqs_scaler or not getattr(built.optimizer, "can_skip", False):
            return built
        if isinstance(built, FP16Optimizer) and built.scaler is not None:
            built.scaler = DeferredLossScaler(built.scaler)
        elif isinstance(built, AMPOptimizer) and built.scaler.is_enabled():
            window, minimum = built.scaler.get_growth_interval(), cfg.common.min_loss_scale
            scaler = DynamicLossScaler(cfg.common.fp16_init_scale, scale_window=window, min_loss_scale=minimum)
            built._grad_scaler = DeferredLossScaler(scaler)  # the rule of torch's GradScaler is the same
        return built

    return build_optimizer


def _unscale_on_device(original: Callable) -> Callable:
    @functools.wraps(original)
    def zero_grad(self: Any) -> None:
        """Frees the gradients; the next ones will be divided by the scale, which the host may not know."""
        original(self)
        if isinstance(self.scaler, DeferredLossScaler):
            self._multiply_factor = self.scaler.current(self.fp32_params[0].device).reciprocal()

    return zero_grad


def _clip_on_device(original: Callable) -> Callable:
    @functools.wraps(original)
    @torch.no_grad()
    def clip_grad_norm(self: Any, max_norm: float, aggregate_norm_fn: Callable | None = None) -> Tensor:
        """Clips without reading the norm; with --fp16 `step` applies the factor. Returns the norm before clipping."""
        norm: Tensor
        if not isinstance(self.scaler, DeferredLossScaler):
            norm = original(self, max_norm, aggregate_norm_fn)
            return norm
        if isinstance(self, AMPOptimizer):
            gradients = [parameter.grad for parameter in self.params if parameter.grad is not None]
            if gradients:
                torch._foreach_mul_(gradients, self.scaler.current(gradients[0].device).reciprocal())
            norm = self.fp32_optimizer.clip_grad_norm(max_norm, aggregate_norm_fn)
            return norm
        self._sync_fp16_grads_to_fp32()
        norm = self._multiply_factor * self.fp32_optimizer.clip_grad_norm(0, aggregate_norm_fn)
        if max_norm > 0:
            self._multiply_factor = self._multiply_factor * (max_norm / norm).clamp(max=1)
        return norm

    return clip_grad_norm
