"""Patches of training in 16 bits (--fp16, --bf16, their memory-efficient forms): on CPU too, and resumed exactly."""

import functools
import sys

import numpy as np
import torch
from fairseq import options, trainer
from fairseq.optim import AMPOptimizer, FP16Optimizer, MemoryEfficientFP16Optimizer, fp16_optimizer
from fairseq.optim.dynamic_loss_scaler import DynamicLossScaler

from fairseq_xl.patches.loss_scale import DeferredLossScaler

#: keys that are added to the optimizer state of checkpoints
MASTERS, SCALER = "fp32_params", "loss_scaler"


def install() -> None:
    """Makes fairseq train in 16 bits without CUDA, leave unused parameters unchanged, and save all of its state."""
    trainer.torch = torch_of_trainer
    trainer.Trainer.__init__ = _set_device(trainer.Trainer.__init__)
    options.parse_args_and_arch = _ignore_implied_tpu(options.parse_args_and_arch)
    build = FP16Optimizer.build_optimizer.__func__
    FP16Optimizer.build_optimizer = classmethod(_without_flattening(build))
    mixin = fp16_optimizer._FP16OptimizerMixin
    mixin._sync_fp16_grads_to_fp32 = _copy_gradients(mixin._sync_fp16_grads_to_fp32)
    mixin._sync_fp32_params_to_fp16 = _copy_weights(mixin._sync_fp32_params_to_fp16)
    mixin.zero_grad = _free_gradients(mixin.zero_grad)
    for optimizer in (FP16Optimizer, MemoryEfficientFP16Optimizer, AMPOptimizer):
        optimizer.state_dict = _save_all_state(optimizer.state_dict)
        optimizer.load_state_dict = _load_all_state(optimizer.load_state_dict)


class _TorchOfTrainer:
    """torch as ``fairseq.trainer`` sees it: `tensor(...).cuda()` moves a tensor to the device of the run.

    After a gradient overflow fairseq makes a zero in this way, with and without a GPU. `isfinite` is true, without a
    wait for the GPU, of a norm that is checked later (`norms.py`).
    """

    device_of_run = None  # the device of the trainer that was built last
    _unchecked = None  # the norm of the last update, if it is checked later

    def tensor(self, *args, **kwargs):
        """Makes a tensor whose `cuda` moves it to the device of the run."""
        made = torch.tensor(*args, **kwargs)
        made.cuda = functools.partial(made.to, self.device_of_run)
        return made

    def check_later(self, norm):
        """Notes a norm that is checked later."""
        self._unchecked = norm

    def is_checked_later(self, norm):
        """Whether a norm is the one that `check_later` was given last."""
        return norm is self._unchecked

    def isfinite(self, tensor):
        """Which elements are finite, as a tensor; numpy's True if the tensor is a norm that is checked later."""
        return np.True_ if self.is_checked_later(tensor) else torch.isfinite(tensor)

    def __getattr__(self, name: str):
        return getattr(torch, name)


torch_of_trainer = _TorchOfTrainer()


def _set_device(original):
    @functools.wraps(original)
    def build(self, *args, **kwargs):
        """Builds the trainer and notes its device."""
        original(self, *args, **kwargs)
        torch_of_trainer.device_of_run = self.device

    return build


def _ignore_implied_tpu(original):
    """Unsets --tpu unless it is given: fairseq sets it for --bf16 and then looks for TPUs."""

    @functools.wraps(original)
    def parse_args_and_arch(parser, input_args=None, *args, **kwargs):
        """Parses arguments, and unsets an implied --tpu."""
        parsed = original(parser, input_args, *args, **kwargs)
        namespace = parsed[0] if isinstance(parsed, tuple) else parsed  # a tuple where unknown arguments are allowed
        if getattr(namespace, "tpu", False):
            namespace.tpu = "--tpu" in (sys.argv[1:] if input_args is None else input_args)
        return parsed

    return parse_args_and_arch


def _without_flattening(original):
    """Keeps parameters apart: of one tensor, in which fairseq keeps them on a GPU, no part can be left out."""

    @functools.wraps(original)
    def build_optimizer(cls, cfg, params, **kwargs):
        """Builds the optimizer with --fp16-no-flatten-grads."""
        cfg.common.fp16_no_flatten_grads = True
        return original(cls, cfg, params, **kwargs)

    return build_optimizer


def _copy_gradients(original):
    """Copies all gradients at once; unused parameters keep None: with fairseq's zeros Adam moves them."""

    @functools.wraps(original)
    @torch.no_grad()
    def sync(self):
        """Copies the gradients that exist to the FP32 master weights."""
        if not self._needs_sync:
            return
        used = []
        for parameter, master in zip(self.fp16_params, self.fp32_params):
            master.grad = None if parameter.grad is None else torch.empty_like(master)
            if parameter.grad is not None:
                used.append((parameter.grad, master.grad))
        if used:
            torch._foreach_copy_([copy for _, copy in used], [gradient for gradient, _ in used])
        self._needs_sync = False

    return sync


def _copy_weights(original):
    @functools.wraps(original)
    @torch.no_grad()
    def sync(self):
        """Copies the FP32 master weights to the model, all at once."""
        torch._foreach_copy_(list(self.fp16_params), list(self.fp32_params))

    return sync


def _free_gradients(original):
    @functools.wraps(original)
    def zero_grad(self):
        """Frees the FP32 gradients; fairseq keeps them, as zeros, while the next ones are computed."""
        for master in self.fp32_params:
            master.grad = None
        original(self)

    return zero_grad


def _save_all_state(original):
    """Adds the FP32 master weights and the state of the loss scale, neither of which fairseq saves."""

    @functools.wraps(original)
    def state_dict(self):
        """Returns the optimizer's state with `MASTERS` and `SCALER`."""
        state = original(self)
        if isinstance(self, FP16Optimizer):
            state[MASTERS] = [master.data for master in self.fp32_params]
        if isinstance(self.scaler, DynamicLossScaler):
            names = [name for name in vars(self.scaler) if name.startswith("_") or name == "loss_scale"]
            state[SCALER] = {name: getattr(self.scaler, name) for name in names}
        return state

    return state_dict


def _load_all_state(original):
    @functools.wraps(original)
    def load_state_dict(self, state_dict, optimizer_overrides=None):
        """Loads the optimizer's state with `MASTERS` and `SCALER`, if the checkpoint has them."""
        state = dict(state_dict)
        masters, scaler = state.pop(MASTERS, None), state.pop(SCALER, None)
        original(self, state, optimizer_overrides)
        if masters is not None and isinstance(self, FP16Optimizer):
            with torch.no_grad():
                for master, saved in zip(self.fp32_params, masters, strict=True):
                    master.copy_(saved)
        if scaler is not None and isinstance(self.scaler, DynamicLossScaler):
            vars(self.scaler).update(scaler)
        if isinstance(self.scaler, DeferredLossScaler):
            self.scaler.on_device = None

    return load_state_dict
