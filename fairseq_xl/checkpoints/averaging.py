"""Averages checkpoints: the mean often scores higher than the last one (Vaswani et al. 2017, section 6.1).

The command is `fairseq-xl model average`.
"""

import logging
import os
import re
from typing import Any

import torch

from fairseq_xl.checkpoints.identity import Checkpoint, open_checkpoint
from fairseq_xl.checkpoints.transfer import transfer_fields
from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io.configuration import registered_model
from fairseq_xl.io.options import ABSENT, INITIAL

logger = logging.getLogger(__name__)

EPOCH = re.compile(r"checkpoint(\d+)\.pt")
UPDATE = re.compile(r"checkpoint_\d+_(\d+)\.pt")
#: settings of training: a difference between checkpoints gives a warning
SETTINGS = ("objective_options", "length", "start")
ENCODING = "encoding"  # key of an identity: the sub-words and tokenizers, as far as they are known


def last_checkpoints(folder: str, count: int, by_update: bool = False) -> list[str]:
    """Paths of a run's newest `count` checkpoints, of epochs or `by_update`, oldest first; `UserError` for fewer."""
    try:
        names = os.listdir(folder)
    except OSError as error:
        raise UserError(f"{folder} is not a folder of checkpoints: {error.strerror}") from error
    kinds = [("checkpointEPOCH.pt", EPOCH), ("checkpoint_EPOCH_UPDATE.pt (--updates)", UPDATE)]
    (kind, pattern), (other_kind, other_pattern) = reversed(kinds) if by_update else kinds
    matches = [match for match in map(pattern.fullmatch, names) if match]
    if count < 1 or len(matches) < count:
        other_count = sum(other_pattern.fullmatch(name) is not None for name in names)
        hint = f"; it holds {other_count} named {other_kind}" if other_count else ""
        raise UserError(f"{folder} holds {len(matches)} checkpoints named {kind}, and --last asks for {count}{hint}")
    matches.sort(key=lambda match: int(match.group(1)))
    return [os.path.join(folder, match.group(0)) for match in matches[-count:]]


def average(paths: list[str]) -> dict:
    """Replaces the parameters of the last checkpoint by the mean over `paths`, oldest first, computed in float64.

    The optimizer's state is left out; "averaged_from" in the extra state names the inputs. Raises `UserError` for
    checkpoints that are not of one model: parameters, identity or options that change the meaning of weights differ.
    """
    if not paths:
        raise UserError("there are no checkpoints to average")
    totals: dict[str, torch.Tensor] = {}
    first: dict[str, Any] = {}
    sums: dict[tuple[float, ...], str] = {}  # of each checkpoint's tensors -> its path
    for path in paths:
        checkpoint = open_checkpoint(path, finite=False)
        state, meaning = checkpoint.content, _meaning(checkpoint)
        first = first or meaning
        _check_meaning(first, meaning, paths[0], path)
        if problem := _problem(totals or state["model"], state["model"], paths[0], path):
            raise UserError(f"{paths[0]} and {path} are not of one model: {problem}")
        key = tuple(value.sum(dtype=torch.float64).item() for value in state["model"].values())
        if key in sums:
            logger.warning("%s and %s have the same weights, which count twice", sums[key], path)
        sums[key] = path
        for name, value in state["model"].items():
            if value.is_floating_point() and name in totals:
                totals[name] += value
            else:
                totals[name] = value.to(torch.float64, copy=True) if value.is_floating_point() else value
    state["model"] = {
        name: (totals[name] / len(paths)).to(value.dtype) if value.is_floating_point() else value
        for name, value in state["model"].items()
    }
    state["last_optimizer_state"] = None
    state["extra_state"] = {**(state.get("extra_state") or {}), "averaged_from": [os.path.basename(p) for p in paths]}
    return state


def _problem(expected: dict, state: dict, first: str, path: str) -> str | None:
    """The first difference between the parameters of two models."""
    if different := sorted(expected.keys() ^ state.keys()):
        return f"only {first if different[0] in expected else path} has {different[0]}"
    for name, value in state.items():
        if expected[name].shape != value.shape:
            return f"{name} has shapes {tuple(expected[name].shape)} and {tuple(value.shape)}"
        if expected[name].is_floating_point() != value.is_floating_point():
            return f"{name} is floating-point in only one of them"
    return None


def _meaning(checkpoint: Checkpoint) -> dict[str, Any]:
    """{name: value} of everything that gives weights their meaning: identity, options of the model, initial weights."""
    identity, model, task = checkpoint.identity, checkpoint.options, checkpoint.task
    fields = transfer_fields(model.get("_name"))
    options = {f"--{name}": model.get(name, metadata.get(ABSENT)) for name, metadata in fields.items()}
    model_class, _ = registered_model(model.get("_name"))
    rest = {name: value for name, value in identity.items() if name not in ("type_state", ENCODING)}
    rest |= identity.get("type_state", {})
    rest |= {f"{ENCODING} {name}": value for name, value in identity[ENCODING].items()}
    files = {name: task[name] for name in INITIAL if task.get(name)}
    start = files or {"seed": (checkpoint.cfg.get("common") or {}).get("seed")}
    return {"model": model_class and model_class.__name__, **options, **rest, "start": start}


def _check_meaning(expected: dict[str, Any], meaning: dict[str, Any], first: str, path: str) -> None:
    for name in {**expected, **meaning}:
        before, now = expected.get(name), meaning.get(name)
        if before == now or (name.startswith(f"{ENCODING} ") and None in (before, now)):  # not known of either
            continue
        if name not in SETTINGS:
            raise UserError(f"{first} and {path} are not of one model: {name} is {quoted(before)} and {quoted(now)}")
        if name == "start":
            logger.warning(
                "%s and %s started from other weights, %s and %s: averages are for one run, or for runs from one model",
                *(first, path, quoted(before), quoted(now)),
            )
        else:
            logger.warning("%s and %s differ in %s: the average has that of the last checkpoint", first, path, name)
