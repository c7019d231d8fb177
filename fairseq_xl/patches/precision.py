"""Training in 16 bits (--fp16, --bf16 and their memory-efficient forms), on CPU too, stopped and continued exactly."""

import functools
import sys

import torch
from fairseq import options, trainer
from fairseq.optim import FP16Optimizer, MemoryEfficientFP16Optimizer, fp16_optimizer

#: what the checkpoint's optimizer state holds beside fairseq's
MASTERS, SCALER = "fp32_params", "loss_scaler"


def install() -> None:
    """Let fairseq train in 16 bits without CUDA, leave unused parameters alone, and save all of its state."""
    trainer.torch = _torch_of_trainer
    trainer.Trainer.__init__ = _knowing_its_device(trainer.Trainer.__init__)
    options.parse_args_and_arch = _asking_for_tpus_only_by_name(options.parse_args_and_arch)
    build = FP16Optimizer.build_optimizer.__func__
    FP16Optimizer.build_optimizer = classmethod(_one_by_one(build))
    mixin = fp16_optimizer._FP16OptimizerMixin
    mixin._sync_fp16_grads_to_fp32 = _leaving_out_missing_gradients(mixin._sync_fp16_grads_to_fp32)
    for optimizer in (FP16Optimizer, MemoryEfficientFP16Optimizer):
        optimizer.state_dict = _with_all_state(optimizer.state_dict)
        optimizer.load_state_dict = _from_all_state(optimizer.load_state_dict)


class _TorchOfTrainer:
    """torch as ``fairseq.trainer`` sees it: `tensor(...).cuda()` moves a tensor to the device of the run.

    After a gradient overflow fairseq makes a zero in this way, with and without a GPU.
    """

    device_of_run = None  # that of the trainer which was built last

    def tensor(self, *args, **kwargs):
        made = torch.tensor(*args, **kwargs)
        made.cuda = functools.partial(made.to, self.device_of_run)
        return made

    def __getattr__(self, name: str):
        return getattr(torch, name)


_torch_of_trainer = _TorchOfTrainer()


def _knowing_its_device(original):
    @functools.wraps(original)
    def build(self, *args, **kwargs):
        original(self, *args, **kwargs)
        _torch_of_trainer.device_of_run = self.device

    return build


def _asking_for_tpus_only_by_name(original):
    """fairseq takes --bf16 for --tpu, which looks for devices that aren't there."""

    @functools.wraps(original)
    def parse_args_and_arch(parser, input_args=None, *args, **kwargs):
        parsed = original(parser, input_args, *args, **kwargs)
        namespace = parsed[0] if isinstance(parsed, tuple) else parsed  # a tuple with what is not known
        if getattr(namespace, "tpu", False):
            namespace.tpu = "--tpu" in (sys.argv[1:] if input_args is None else input_args)
        return parsed

    return parse_args_and_arch


def _one_by_one(original):
    """fairseq keeps all parameters in one tensor, on a GPU only; a part of it cannot be left out of an update."""

    @functools.wraps(original)
    def build_optimizer(cls, cfg, params, **kwargs):
        cfg.common.fp16_no_flatten_grads = True
        return original(cls, cfg, params, **kwargs)

    return build_optimizer


def _leaving_out_missing_gradients(original):
    """A parameter that an update didn't use has no gradient; fairseq gives it zeros, with which Adam moves it."""

    @functools.wraps(original)
    def sync(self):
        if not self._needs_sync:
            return
        original(self)
        for parameter, master in zip(self.fp16_params, self.fp32_params):
            if parameter.grad is None:
                master.grad = None

    return sync


def _with_all_state(original):
    """fairseq saves neither the parameters in 32 bits, whose 16 bits the model has, nor when the scale last changed."""

    @functools.wraps(original)
    def state_dict(self):
        state = original(self)
        if isinstance(self, FP16Optimizer):
            state[MASTERS] = [master.data for master in self.fp32_params]
        if self.scaler is not None:
            state[SCALER] = {name: value for name, value in vars(self.scaler).items() if name.startswith("_")}
        return state

    return state_dict


def _from_all_state(original):
    @functools.wraps(original)
    def load_state_dict(self, state_dict, optimizer_overrides=None):
        state = dict(state_dict)
        masters, scaler = state.pop(MASTERS, None), state.pop(SCALER, None)
        original(self, state, optimizer_overrides)
        if masters is not None and isinstance(self, FP16Optimizer):
            with torch.no_grad():
                for master, saved in zip(self.fp32_params, masters, strict=True):
                    master.copy_(saved)
        if scaler is not None and self.scaler is not None:
            vars(self.scaler).update(scaler)

    return load_state_dict
