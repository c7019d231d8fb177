"""The base of the optimizers: state in float32, as in fairseq's Adam, and updates of many tensors at once."""

from collections.abc import Collection, Iterator
from typing import Any

import torch
from fairseq.optim import FairseqOptimizer
from torch import Tensor

from fairseq_xl.errors import UserError, check_ranges
from fairseq_xl.io.options import literal

#: elements per chunk of an update with temporary copies (128 MiB in float32)
CHUNK = 2**25


class MultiTensorOptimizer(torch.optim.Optimizer):
    """An optimizer with the state `step` (int), `exp_avg` and `exp_avg_sq` of each parameter, as fairseq's Adam has it.

    The means are in float32, also those of parameters in 16 bits. A parameter without a gradient is unchanged, with its
    state. `step` is an int on the host, so that no update waits for the GPU. A subclass defines `update`, with
    operators of lists of tensors: a GPU runs a few kernels, not a dozen for each parameter.
    """

    supports_memory_efficient_fp16 = True  # parameters in 16 bits alone, without a copy in 32
    disable_mem_eff_fp16_loading_hack = True  # fairseq restores no state: none is cast to 16 bits

    def __init__(self, params: Any, lr: float, betas: tuple[float, float], eps: float, weight_decay: float):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Updates the parameters that have a gradient."""
        for group in self.param_groups:
            for (step, *_), parameters in self._count(group["params"]).items():
                self.update(parameters, step, group)

    def update(self, parameters: list[Tensor], step: int, group: dict) -> None:
        """Updates parameters of one device and type for the `step`-th time, counted from 1, and their means."""
        raise NotImplementedError

    def _count(self, parameters: list[Tensor]) -> dict[tuple, list[Tensor]]:
        """Counts an update of the parameters with a gradient: {(number of their updates, device, type): parameters}."""
        counted: dict[tuple, list[Tensor]] = {}
        for parameter in parameters:
            if parameter.grad is None:
                continue
            state = self.state[parameter]
            if not state:
                state["step"] = 0
                for name in ("exp_avg", "exp_avg_sq"):
                    state[name] = torch.zeros_like(parameter, dtype=torch.float32)
            state["step"] += 1
            counted.setdefault((state["step"], parameter.device, parameter.dtype), []).append(parameter)
        return counted

    def means(self, parameters: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """The means of the gradients and of their squares."""
        states = [self.state[parameter] for parameter in parameters]
        return [state["exp_avg"] for state in states], [state["exp_avg_sq"] for state in states]

    def load_state_dict(self, state_dict: dict) -> None:
        """Loads a state of this class, of fairseq's Adam or of torch's AdamW; means stay in float32."""
        super().load_state_dict(state_dict)  # casts the means to the type of the parameters
        indices = [index for group in state_dict["param_groups"] for index in group["params"]]
        for index, parameter in zip(indices, optimizer_parameters(self), strict=True):
            state = state_dict["state"].get(index)
            if state:
                means = {name: state[name].to(parameter.device, torch.float32) for name in ("exp_avg", "exp_avg_sq")}
                # a copy: the state in memory would change with this one
                self.state[parameter] = {"step": int(state["step"]), **{k: mean.clone() for k, mean in means.items()}}


def optimizer_parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """The parameters of an optimizer, in the order of their indices in a state."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def gradients(parameters: list[Tensor]) -> list[Tensor]:
    """The gradients, each with the strides of its parameter, as updates of many tensors need them."""
    result = []
    for parameter in parameters:
        gradient = parameter.grad
        assert gradient is not None, "parameters without a gradient are left out"
        if gradient.stride() != parameter.stride():
            gradient = torch.empty_like(parameter).copy_(gradient)
        result.append(gradient)
    return result


def in_float32(tensors: list[Tensor]) -> list[Tensor]:
    """The tensors, all of one type, in float32: unchanged or copies."""
    if tensors[0].dtype == torch.float32:
        return tensors
    copies = [torch.empty_like(tensor, dtype=torch.float32) for tensor in tensors]
    torch._foreach_copy_(copies, tensors)
    return copies


def chunks(parameters: list[Tensor]) -> Iterator[list[Tensor]]:
    """Consecutive parameters with at most `CHUNK` elements together; a larger parameter is alone."""
    chunk: list[Tensor] = []
    elements = 0
    for parameter in parameters:
        if chunk and elements + parameter.numel() > CHUNK:
            yield chunk
            chunk, elements = [], 0
        chunk.append(parameter)
        elements += parameter.numel()
    if chunk:
        yield chunk


class XLOptimizer(FairseqOptimizer):
    """An optimizer with options NAME_betas, NAME_eps, weight_decay and lr; `UserError` for one that is out of range."""

    name: str  # prefix of its options
    config: type
    torch_class: type[MultiTensorOptimizer]

    def __init__(self, cfg: Any, params: Any):
        super().__init__(cfg)
        check_ranges(self.config, cfg)
        rates = cfg.lr if isinstance(cfg.lr, Collection) else [cfg.lr]
        self.settings = {
            "lr": float(next(iter(rates))),  # the first of a schedule's
            "betas": parse_betas(f"--{self.name}-betas", getattr(cfg, f"{self.name}_betas")),
            "eps": getattr(cfg, f"{self.name}_eps"),
            "weight_decay": cfg.weight_decay,
        }
        self._optimizer = self.torch_class(params, **self.settings)

    @property
    def optimizer_config(self) -> dict[str, Any]:
        """The settings of the run, which replace those in a checkpoint."""
        return self.settings


def parse_betas(option: str, betas: Any) -> tuple[float, float]:
    """``(0.9, 0.98)``, as text or not -> (0.9, 0.98); raises `UserError` unless it is two numbers from 0 to below 1."""
    try:
        first, second = literal(betas) if isinstance(betas, str) else betas
        is_valid = 0 <= first < 1 and 0 <= second < 1
    except (ValueError, TypeError):  # no literal, or no pair of numbers
        is_valid = False
    if not is_valid:
        raise UserError(f"{option} {betas}: expected two numbers from 0 to below 1, such as '(0.9, 0.98)'")
    return float(first), float(second)
