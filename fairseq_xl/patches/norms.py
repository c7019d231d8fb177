"""Patches of gradient norms: a few kernels compute them, and an update does not wait until they are known."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from fairseq import trainer, utils
from fairseq.logging import metrics
from torch import Tensor

from fairseq_xl.patches.loss_scale import DeferredLossScaler
from fairseq_xl.patches.metrics import kept_if
from fairseq_xl.patches.precision import torch_of_trainer

#: the largest relative difference of the ranks' norms, as in fairseq
TOLERANCE = 1e-6


def install() -> None:
    """Makes updates run without a wait for the device, if the optimizer can skip them there."""
    utils.clip_grad_norm_ = _foreach_clip(utils.clip_grad_norm_)
    trainer.Trainer._check_grad_norms = _check_later(trainer.Trainer._check_grad_norms)
    trainer.Trainer._reduce_and_log_stats = _log_without_reading(trainer.Trainer._reduce_and_log_stats)


class Diverged(FloatingPointError):
    """Gradients of an earlier update were NaN or infinite, or differed between ranks; the update was skipped.

    Attributes:
        update: number of the update.
        samples: its batches, as the trainer got them.
    """

    def __init__(self, message: str, update: int, samples: list):
        super().__init__(message)
        self.update, self.samples = update, samples


class _Norms:
    """The norms of all ranks in one update, on their way to the host."""

    def __init__(self, norms: Tensor, update: int, samples: list):
        self.update, self.samples = update, samples
        self.copied: torch.cuda.Event | None = None
        self.host = torch.empty(norms.shape, dtype=norms.dtype, pin_memory=norms.is_cuda)
        self.host.copy_(norms, non_blocking=norms.is_cuda)
        if norms.is_cuda:
            self.copied = torch.cuda.Event()
            self.copied.record()

    def read(self) -> Any:
        """The norms, an array; waits only until they are copied."""
        if self.copied is not None:
            self.copied.synchronize()
        norms = self.host.numpy()
        return norms

    def check(self) -> None:
        """Raises `Diverged` for norms that do not allow the update."""
        norms = self.read()
        if not np.isfinite(norms).all():
            raise Diverged("gradients are Nan/Inf", self.update, self.samples)
        if not _agree(norms):
            ranks = ", ".join(f"rank {rank} = {norm:.8f}" for rank, norm in enumerate(norms))
            raise Diverged(f"gradients are inconsistent between workers: {ranks}", self.update, self.samples)


def _agree(norms: Any) -> Any:
    """Whether the norms of all ranks, an array or a tensor, are equal up to rounding."""
    return abs(norms - norms[0]).max() < TOLERANCE * (norms[0] + TOLERANCE)


def _check_later(original: Callable) -> Callable:
    """Checks the norm one update later, when it is on the host; until then the GPU skips an unsound update.

    The check reads the previous update's norm, so the GPU always has queued work.
    """

    @functools.wraps(original)
    def _check_grad_norms(self: Any, grad_norm: Tensor) -> None:
        """Checks the norms of the update before this one, and marks an unsound update for the optimizer."""
        optimizer, common, scaler = self.optimizer.optimizer, self.cfg.common, _deferred_scaler(self)
        if not getattr(optimizer, "can_skip", False) or ((common.fp16 or common.amp) and scaler is None):
            original(self, grad_norm)
            return
        norms = grad_norm.reshape(1)
        if self._grad_norm_buf is not None:  # on CUDA with several ranks
            norms = self._grad_norm_buf.zero_()
            norms[self.data_parallel_rank] = grad_norm
            trainer.distributed_utils.all_reduce(norms, group=self.data_parallel_process_group)
        check_last_update(self)
        sound = torch.isfinite(norms).all() & _agree(norms)
        optimizer.found_inf = (~sound).to(torch.float32)
        if scaler is not None:
            scaler.set_next_scale(~sound)
        self.norms_to_check = _Norms(norms, self.get_num_updates() + 1, getattr(self, "samples_of_update", []))
        torch_of_trainer.check_later(grad_norm)

    return _check_grad_norms


def _deferred_scaler(trainer_of_run: Any) -> DeferredLossScaler | None:
    """The loss scale, if it is on the device."""
    scaler = getattr(trainer_of_run.optimizer, "scaler", None)
    return scaler if isinstance(scaler, DeferredLossScaler) else None


def check_last_update(trainer_of_run: Any) -> None:
    """Reads the norms of the last update, unless they were read before, and updates the loss scale.

    After an overflow with a loss scale, the optimizer's step count is reduced by one. Raises `Diverged` for norms that
    differ between ranks, for norms that are not finite without a loss scale, and if the scale cannot be lowered.
    """
    norms, scaler = vars(trainer_of_run).pop("norms_to_check", None), _deferred_scaler(trainer_of_run)
    if norms is None:
        return
    overflow = scaler is not None and not np.isfinite(norms.read()).all()
    if not overflow:
        norms.check()
    if scaler is None:
        return
    if overflow:
        trainer_of_run.optimizer.optimizer.undo_step_count()
    try:
        scaler.record_overflow(overflow)
    except FloatingPointError as error:
        raise Diverged(str(error), norms.update, norms.samples) from error


def _log_without_reading(original: Callable) -> Callable:
    """Logs an update whose norm is checked later, where fairseq would read the norm."""

    @functools.wraps(original)
    def _reduce_and_log_stats(
        self: Any, logging_outputs: list, sample_size: Any, grad_norm: Tensor | None = None
    ) -> dict[str, Any]:
        """Logs the statistics of an update; one that an overflow skips is not part of means and sums."""
        if grad_norm is None or not torch_of_trainer.is_checked_later(grad_norm):
            return original(self, logging_outputs, sample_size, grad_norm)
        clip_norm, deferred = self.cfg.optimization.clip_norm, _deferred_scaler(self) is not None
        with kept_if(self.optimizer.optimizer.found_inf == 0) if deferred else contextlib.nullcontext():
            metrics.log_speed("ups", 1.0, priority=100, round=2)
            metrics.log_scalar("gnorm", grad_norm, priority=400, round=3)
            if clip_norm > 0:
                metrics.log_scalar("clip", (grad_norm > clip_norm) * 100.0, priority=500, round=1)
            return original(self, logging_outputs, sample_size)

    return _reduce_and_log_stats


def _foreach_clip(original: Callable) -> Callable:
    """Clips with operators for all gradients at once; fairseq's, without apex, are one for each."""

    @functools.wraps(original)
    @torch.no_grad()
    def clip_grad_norm_(params: Any, max_norm: float, aggregate_norm_fn: Callable | None = None) -> Tensor:
        """Clips gradients to the norm `max_norm`, if it is above 0; returns the norm before, a tensor."""
        params = [params] if isinstance(params, torch.Tensor) else list(params)
        gradients = [parameter.grad for parameter in params if parameter.grad is not None]
        if not gradients or aggregate_norm_fn is not None or any(hasattr(each, "expert") for each in params):
            return original(params, max_norm, aggregate_norm_fn)  # of models that this package does not have
        norms = torch._foreach_norm(gradients, 2, torch.float32)
        norm = torch.linalg.vector_norm(torch.stack(norms))
        if max_norm > 0:
            torch._foreach_mul_(gradients, (float(max_norm) / (norm + 1e-6)).clamp_(max=1))
        return norm

    return clip_grad_norm_
