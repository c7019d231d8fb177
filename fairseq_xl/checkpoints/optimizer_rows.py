"""Finds the parameters of an optimizer's state, and changes their rows. Shapes: `V` rows, `C` channels."""

import fnmatch
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fairseq_xl.checkpoints.language_modules import in_module

Change = Callable[[str, Tensor], Tensor]

MASTERS = "fp32_params"  # key of the optimizer state with float32 copies of weights in 16 bits


class OtherParameters(Exception):
    """An optimizer's state is of other parameters than expected."""


def trained_names(model: dict[str, Tensor], cfg: dict[str, Any]) -> list[str]:
    """Names of the parameters that a run trains, in the order of its optimizer.

    Args:
        model: state dict of the model, which has its parameters in their order.
        cfg: configuration of the run, with --train-only of pre-training and --freeze of fine-tuning.
    """
    task, positions = cfg["task"], bool((cfg.get("model") or {}).get("language_positions"))

    def matches(name: str, patterns: str) -> bool:
        return any(
            in_module(name, positions) if pattern == "language-module" else fnmatch.fnmatch(name, pattern)
            for pattern in patterns.split(",")
        )

    only, frozen = task.get("train_only"), task.get("freeze")
    return [name for name in model if not (only and not matches(name, only)) and not (frozen and matches(name, frozen))]


def change_optimizer(
    state: dict[str, Any], parameters: dict[str, Tensor], change_weights: Change, change_moments: Change
) -> dict[str, Any]:
    """Returns an optimizer's state, a checkpoint's `last_optimizer_state`, with other rows.

    Args:
        parameters: {name: parameter} of the trained parameters in order, before the change.
        change_weights, change_moments: functions of a parameter's name and a tensor that give float32 parameters, and
            moments, their new rows.

    Raises `OtherParameters` if numbers of parameters or shapes differ.
    """
    indices = [index for group in state["param_groups"] for index in group["params"]]
    if len(indices) != len(parameters):
        raise OtherParameters(f"it has {len(indices)} parameters, the run trains {len(parameters)}")
    changed = dict(state)
    names = dict(zip(indices, parameters))
    changed["state"] = {
        index: _change_moments(moments, names[index], parameters[names[index]], change_moments)
        for index, moments in state["state"].items()
    }
    masters = state.get(MASTERS)  # FP32 master weights, of a run with 16 bits
    if masters is not None:
        if [tensor.shape for tensor in masters] != [tensor.shape for tensor in parameters.values()]:
            raise OtherParameters("its FP32 master weights have other shapes than the model's")
        changed[MASTERS] = [change_weights(name, master) for name, master in zip(parameters, masters)]
    return changed


def _change_moments(moments: dict[str, Any], name: str, parameter: Tensor, change: Change) -> dict[str, Any]:
    """The state of one parameter: moments of its shape, for rows (V,) and columns (C,) in Adafactor, and numbers."""
    changed = dict(moments)
    for key, value in moments.items():
        if not torch.is_tensor(value) or not value.dim():
            continue
        by_column = key.endswith("_col") and value.shape == parameter.shape[:-2] + parameter.shape[-1:]
        if value.shape != parameter.shape and value.shape != parameter.shape[:-1] and not by_column:
            raise OtherParameters(f"{key} of {name} has shape {tuple(value.shape)}, expected {tuple(parameter.shape)}")
        if not by_column:
            changed[key] = change(name, value)
    return changed
