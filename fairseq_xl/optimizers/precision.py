"""Updates in 32 and in 16 bits: loss scale, clipping, and copies of the weights in float32."""

import contextlib
import logging
import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from fairseq import optim
from fairseq.optim import FairseqOptimizer
from fairseq.optim.dynamic_loss_scaler import DynamicLossScaler
from omegaconf import DictConfig
from torch import Tensor
from torch.nn import Parameter

from fairseq_xl.checkpoints.parameter_names import MASTERS
from fairseq_xl.errors import UserError
from fairseq_xl.optimizers.float32_state import optimizer_parameters

logger = logging.getLogger(__name__)

SCALER = "loss_scaler"  # key of the optimizer state, as `MASTERS`, that fairseq's checkpoints do not have
NO_LOWER_SCALE = "gradients are NaN or infinite even with the smallest loss scale"


class Overflow(Exception):
    """Gradients are infinite or NaN with this loss scale: the update is skipped, the next one has a lower scale."""


class Diverged(Exception):
    """Gradients are infinite or NaN, and no lower loss scale is left."""


@torch.no_grad()
def clip(parameters: Iterable[Tensor], max_norm: float) -> Tensor:
    """Scales gradients to at most the norm `max_norm` (0: any); returns the norm before, float32, on their device."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients:
        return torch.tensor(0.0)
    norm = torch.linalg.vector_norm(torch.stack(list(torch._foreach_norm(gradients, 2, torch.float32))))
    if max_norm > 0:
        torch._foreach_mul_(gradients, (float(max_norm) / (norm + 1e-6)).clamp_(max=1))
    return norm


class Optimizer:
    """Updates of weights in float32; `name` is the class by which fairseq's checkpoints tell the `precision`."""

    precision = "float32"

    def __init__(self, fairseq_optimizer: FairseqOptimizer):
        self.fairseq_optimizer = fairseq_optimizer
        self.name = type(fairseq_optimizer).__name__

    @property
    def torch_optimizer(self) -> torch.optim.Optimizer:
        return self.fairseq_optimizer.optimizer

    @property
    def loss_scale(self) -> float | None:
        """The factor of the next loss; None without one."""
        return None

    def autocast(self) -> contextlib.AbstractContextManager:
        """The context of the forward pass."""
        return contextlib.nullcontext()

    def zero_grad(self) -> None:
        """Frees all gradients."""
        self.fairseq_optimizer.zero_grad()

    def backward(self, loss: Tensor) -> None:
        """Adds the gradients of a loss, a scalar."""
        loss.backward()

    def multiply_grads(self, factor: float | Tensor) -> None:
        """Multiplies the gradients."""
        self.fairseq_optimizer.multiply_grads(factor)

    def clip_grad_norm(self, max_norm: float) -> Tensor:
        """Clips the gradients to `max_norm` (0: not at all); returns the norm before, on the device."""
        return clip(self.fairseq_optimizer.params, max_norm)

    def check(self, norm: float) -> None:
        """Raises `Diverged` for an infinite norm or NaN, or `Overflow` if the loss scale can be lower."""
        if not math.isfinite(norm):
            raise Diverged("gradients are NaN or infinite")

    def step(self) -> None:
        """Makes the update."""
        self.fairseq_optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        """The state for checkpoints, as fairseq's classes have it."""
        return self.fairseq_optimizer.state_dict()

    def load_state_dict(self, state: dict[str, Any], overrides: Mapping[str, Any]) -> None:
        """Restores a state with the settings of the run and of --optimizer-overrides; the scheduler sets the rate."""
        settings = {name: value for name, value in self.fairseq_optimizer.optimizer_config.items() if name != "lr"}
        self.fairseq_optimizer.load_state_dict(state, settings | dict(overrides))


class _ScaledOptimizer(Optimizer):
    """An optimizer that multiplies gradients by a factor, for loss scale and clipping, in the step only."""

    def __init__(self, fairseq_optimizer: FairseqOptimizer, scaler: DynamicLossScaler | None):
        super().__init__(fairseq_optimizer)
        self.scaler = scaler
        self.factor: float | Tensor = 1.0

    @property
    def loss_scale(self) -> float | None:
        return None if self.scaler is None else self.scaler.loss_scale

    def zero_grad(self) -> None:
        super().zero_grad()
        self.factor = 1.0 if self.scaler is None else 1.0 / float(self.scaler.loss_scale)

    def backward(self, loss: Tensor) -> None:
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()

    def multiply_grads(self, factor: float | Tensor) -> None:
        self.factor *= factor

    def clip_grad_norm(self, max_norm: float) -> Tensor:
        norm = self.factor * clip(self.fairseq_optimizer.params, 0)
        if isinstance(self.factor, Tensor):
            self.factor = self.factor.to(norm.device)
        if max_norm > 0:
            margin = 1e-6 if self.scaler is None else 0.0  # as in fairseq
            self.factor *= (max_norm / (norm + margin)).clamp_(max=1)
        return norm

    def check(self, norm: float) -> None:
        if self.scaler is None:
            return super().check(norm)
        try:
            self.scaler.check_overflow(norm)
        except OverflowError as error:
            raise Overflow(str(error)) from error
        except FloatingPointError as error:
            raise Diverged(NO_LOWER_SCALE) from error

    def step(self) -> None:
        if isinstance(self.factor, Tensor) or self.factor != 1.0:
            self.fairseq_optimizer.multiply_grads(self.factor)
            self.factor = 1.0
        self.fairseq_optimizer.step()
        if self.scaler is not None:
            self.scaler.update()

    def state_dict(self) -> dict[str, Any]:
        """fairseq's state, and the whole one of the loss scale, which fairseq does not save."""
        state = super().state_dict()
        if self.scaler is not None:
            names = [name for name in vars(self.scaler) if name.startswith("_") or name == "loss_scale"]
            state["loss_scale"] = self.scaler.loss_scale
            state[SCALER] = {name: getattr(self.scaler, name) for name in names}
        return state

    def load_state_dict(self, state: dict[str, Any], overrides: Mapping[str, Any]) -> None:
        """Restores a state, also one that fairseq wrote."""
        scale = {"loss_scale": state["loss_scale"]} if "loss_scale" in state else {}
        super().load_state_dict(state, overrides)
        if self.scaler is not None:
            vars(self.scaler).update(scale | state.get(SCALER, {}))


class MasterWeightsOptimizer(_ScaledOptimizer):
    """Updates of weights in 16 bits through copies in float32, which the optimizer holds (--fp16, --bf16)."""

    def __init__(self, cfg: DictConfig, parameters: list[Parameter]):
        self.parameters = parameters
        self.masters = [_master(parameter) for parameter in parameters]
        super().__init__(optim.build_optimizer(cfg.optimizer, self.masters), _scaler(cfg))
        self.name, self.precision = "FP16Optimizer", f"{_sixteen_bits(cfg)} with master weights in float32"

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None
        super().zero_grad()

    @torch.no_grad()
    def clip_grad_norm(self, max_norm: float) -> Tensor:
        """Copies the gradients to float32, and clips them; without a gradient a parameter stays as it is."""
        gradients, copies = [], []
        for parameter, master in zip(self.parameters, self.masters, strict=True):
            if parameter.grad is not None:
                master.grad = torch.empty_like(master)
                gradients.append(parameter.grad)
                copies.append(master.grad)
        if copies:
            torch._foreach_copy_(copies, gradients)
        return super().clip_grad_norm(max_norm)

    @torch.no_grad()
    def step(self) -> None:
        super().step()
        torch._foreach_copy_(list(self.parameters), list(self.masters))

    def state_dict(self) -> dict[str, Any]:
        """The state with the copies, which fairseq does not save."""
        return super().state_dict() | {MASTERS: [master.data for master in self.masters]}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any], overrides: Mapping[str, Any]) -> None:
        """Restores the copies too; those of fairseq's checkpoints are the model's weights."""
        masters = state.get(MASTERS)
        super().load_state_dict({key: value for key, value in state.items() if key != MASTERS}, overrides)
        if masters is not None:
            for master, saved in zip(self.masters, masters, strict=True):
                master.copy_(saved)


class LowPrecisionOptimizer(_ScaledOptimizer):
    """Updates of weights in 16 bits without copies (--memory-efficient-fp16, --memory-efficient-bf16)."""

    def __init__(self, cfg: DictConfig, parameters: list[Parameter]):
        fairseq_optimizer = optim.build_optimizer(cfg.optimizer, parameters)
        if not fairseq_optimizer.supports_memory_efficient_fp16:
            option = f"--memory-efficient-{'bf16' if cfg.common.bf16 else 'fp16'}"
            raise UserError(f"{option} needs --optimizer xl_adam or xl_lamb, not {cfg.optimizer._name}")
        super().__init__(fairseq_optimizer, _scaler(cfg))
        self.name, self.precision = "MemoryEfficientFP16Optimizer", _sixteen_bits(cfg)

    def load_state_dict(self, state: dict[str, Any], overrides: Mapping[str, Any]) -> None:
        """Restores a state; where torch casts it to 16 bits, sets it again."""
        super().load_state_dict(state, overrides)
        if getattr(self.torch_optimizer, "disable_mem_eff_fp16_loading_hack", False):
            return
        indices = [index for group in state["param_groups"] for index in group["params"]]
        for index, parameter in zip(indices, optimizer_parameters(self.torch_optimizer)):
            if index in state["state"]:
                self.torch_optimizer.state[parameter] = state["state"][index]


class AutocastOptimizer(Optimizer):
    """Updates of weights in float32 with a forward pass in 16 bits (--amp); without CUDA, all is in 32 bits."""

    precision = "float32 with products in float16 (autocast) on a GPU"

    def __init__(self, cfg: DictConfig, parameters: list[Parameter]):
        super().__init__(optim.build_optimizer(cfg.optimizer, parameters))
        self.name, self.min_loss_scale = "AMPOptimizer", cfg.common.min_loss_scale
        on_gpu = torch.cuda.is_available() and not cfg.common.cpu
        window = {} if cfg.common.amp_scale_window is None else {"growth_interval": cfg.common.amp_scale_window}
        self.scaler = torch.amp.GradScaler("cuda", init_scale=cfg.common.amp_init_scale, enabled=on_gpu, **window)

    @property
    def loss_scale(self) -> float | None:
        return self.scaler.get_scale()

    def autocast(self) -> contextlib.AbstractContextManager:
        return torch.autocast("cuda", enabled=self.scaler.is_enabled())

    def backward(self, loss: Tensor) -> None:
        self.scaler.scale(loss).backward()

    def clip_grad_norm(self, max_norm: float) -> Tensor:
        self.scaler.unscale_(self.torch_optimizer)  # divides the gradients by the loss scale
        return super().clip_grad_norm(max_norm)

    def check(self, norm: float) -> None:
        if not self.scaler.is_enabled() or math.isfinite(norm):
            return super().check(norm)
        lower = self.scaler.get_scale() * self.scaler.get_backoff_factor()
        if lower <= self.min_loss_scale:
            raise Diverged(NO_LOWER_SCALE)
        self.step()  # torch skips the update, and lowers the scale
        raise Overflow(f"setting loss scale to: {lower}")

    def step(self) -> None:
        self.scaler.step(self.torch_optimizer)
        self.scaler.update()

    def state_dict(self) -> dict[str, Any]:
        """The state with that of the loss scale, which fairseq does not save."""
        return super().state_dict() | {SCALER: self.scaler.state_dict()}

    def load_state_dict(self, state: dict[str, Any], overrides: Mapping[str, Any]) -> None:
        super().load_state_dict(state, overrides)
        if self.scaler.is_enabled() and "growth_factor" in (saved := state.get(SCALER) or {}):
            self.scaler.load_state_dict(saved)


def build(cfg: DictConfig, parameters: list[Parameter]) -> Optimizer:
    """The optimizer of a run, by --fp16, --bf16, --amp and their memory-efficient variants."""
    if cfg.common.memory_efficient_fp16 or cfg.common.memory_efficient_bf16:
        return LowPrecisionOptimizer(cfg, parameters)
    if cfg.common.fp16 or cfg.common.bf16:
        return MasterWeightsOptimizer(cfg, parameters)
    if cfg.common.amp:
        return AutocastOptimizer(cfg, parameters)
    return Optimizer(optim.build_optimizer(cfg.optimizer, parameters))


def _sixteen_bits(cfg: DictConfig) -> str:
    return "bfloat16" if cfg.common.bf16 else "float16"


def _master(parameter: Parameter) -> Parameter:
    master = Parameter(parameter.data.float())
    for name in ("param_group", "optim_overrides", "matrices"):  # fairseq's groups of parameters; of LAMB
        if hasattr(parameter, name):
            setattr(master, name, getattr(parameter, name))
    return master


def _scaler(cfg: DictConfig) -> DynamicLossScaler | None:
    """The loss scale of --fp16; bfloat16 needs none."""
    if cfg.common.bf16:
        return None
    window, steps = cfg.common.fp16_scale_window, cfg.optimization.update_freq
    if window is None and len(steps) > 1:
        raise UserError("--fp16-scale-window is missing: give it with several numbers of --update-freq")
    return DynamicLossScaler(
        init_scale=cfg.common.fp16_init_scale,
        scale_window=window or int(2**14 / cfg.distributed_training.distributed_world_size / steps[0]),
        tolerance=cfg.common.fp16_scale_tolerance,
        threshold=cfg.common.threshold_loss_scale,
        min_loss_scale=cfg.common.min_loss_scale,
    )
