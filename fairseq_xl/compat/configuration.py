"""What a checkpoint says of its model, task and criterion: names of ours and plain data, before anything is built.

Several of fairseq's architectures, tasks and criterions evaluate text of their options as Python. A checkpoint names
both, the class and the text: without these checks whoever reads the file runs it.
"""

import argparse
import ast
import dataclasses
import enum
import typing

import torch
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY, CRITERION_REGISTRY
from fairseq.dataclass.configs import FairseqConfig
from fairseq.logging import meters
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY

from fairseq_xl.errors import UserError, quoted

#: what is built from a file: part of the configuration -> the classes by name, their options
BUILT = {
    "model": (ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY),
    "task": (TASK_REGISTRY, TASK_DATACLASS_REGISTRY),
    "criterion": (CRITERION_REGISTRY, CRITERION_DATACLASS_REGISTRY),
}
#: those of fairseq's that are built too: they compute a loss and evaluate nothing
OF_FAIRSEQ = {"cross_entropy", "label_smoothed_cross_entropy"}
#: what fairseq's hub interface would build, for raw text its user names it; and a name, which a whole one doesn't have
LEFT_OUT = {"bpe", "tokenizer", "_name"}
MOST_VALUES = 10_000  # in an option of any type, lists in lists counted as often as they are named
LONGEST_LITERAL = 1000  # characters
NOT_FINITE = "has values that are no finite numbers (NaN, infinite)"
OUR_PACKAGE = __package__.split(".")[0]


def check_configuration(state: dict, path) -> dict:
    """A checkpoint, of the file `path`, with a configuration that is safe to build from.

    It names classes of this package, or those of `OF_FAIRSEQ`. Options have the types that their dataclasses give them,
    and are data: nothing that omegaconf would resolve, no text where fairseq would evaluate it. What no dataclass of
    this version has is left out.

    Raises:
        UserError: naming the file, the key, and what is expected and found.
    """
    if state.get("args") is not None:
        raise _refusal(path, "args", "nothing: the configuration is under 'cfg'", state["args"])
    _check_meters(state, path)
    if state.get("cfg") is None:
        return state
    if type(state["cfg"]) is not dict:
        found = quoted(state["cfg"])
        raise UserError(f"{path} is not a fairseq checkpoint: 'cfg' is expected to be a dict, found {found}")
    known = {}
    for field in dataclasses.fields(FairseqConfig):
        section, key = state["cfg"].get(field.name), f"cfg.{field.name}"
        if field.name in LEFT_OUT or section is None:
            known[field.name] = None
        elif field.name in BUILT:
            known[field.name] = _options(section, _class_of(section, field.name, path), key, path)
        elif dataclasses.is_dataclass(field.type):
            known[field.name] = _options(section, field.type, key, path, or_none=True)
        else:  # the optimizer and its like; fairseq keeps the options of old ones in a Namespace
            plain = vars(section) if type(section) is argparse.Namespace else section
            name = plain.get("_name") if type(plain) is dict and isinstance(plain.get("_name"), str) else None
            kind = REGISTRIES[field.name]["dataclass_registry"].get(name)
            if kind is None and not _is_plain(plain):
                raise _refusal(path, key, "plain data", section)
            known[field.name] = section if kind is None else _options(section, kind, key, path, or_none=True)
    return {**state, "cfg": {name: section for name, section in known.items() if name in state["cfg"]}}


def check_finite(state: dict, path) -> None:
    """Raises `UserError` for a checkpoint, of the file `path`, with weights that are no finite numbers."""
    for name, value in state["model"].items():
        if torch.is_tensor(value) and value.is_floating_point() and not is_finite(value):
            raise UserError(f"{path} {NOT_FINITE} in {name}: the training that wrote it had failed")


def is_finite(tensor: torch.Tensor) -> bool:
    """Whether all of a tensor's numbers are finite: least and greatest tell, many times faster than asking each."""
    return not tensor.numel() or bool(torch.stack(tensor.aminmax()).isfinite().all())


def check_values(values: dict, kinds: dict, key: str, path) -> None:
    """Raises `UserError` for a value of another type than `kinds` has under its name.

    Args:
        values: by name, of a file; names that `kinds` lacks may have any value.
        kinds: types as those of a dataclass' fields.
        key: where in the file `path` the values are, for messages.
    """
    for name in values.keys() & kinds.keys():
        if not _fits(values[name], kinds[name]):
            raise _refusal(path, f"{key}.{name}", _told(kinds[name]), values[name])


def _class_of(section, part: str, path):
    """The dataclass of what a part of a configuration names; `UserError` for what isn't built from files."""
    classes, options = BUILT[part]
    name = section.get("_name") if type(section) is dict else None
    found = classes.get(name) if isinstance(name, str) else None
    ours = found is not None and found.__module__.split(".")[0] == OUR_PACKAGE
    if (not ours and (part != "criterion" or name not in OF_FAIRSEQ)) or name not in options:
        expected = f"a {part} of fairseq_xl" + (f", {' or '.join(sorted(OF_FAIRSEQ))}" if part == "criterion" else "")
        raise _refusal(path, f"cfg.{part}._name", expected, section if type(section) is not dict else name)
    return options[name]


def _options(section, kind, key: str, path, or_none: bool = False) -> dict:
    """Those of the options in a part of a configuration that its dataclass `kind` has, each of its type."""
    if type(section) is not dict:
        raise _refusal(path, key, "a dict", section)
    known = {}
    for field in dataclasses.fields(kind):
        if field.name in section:
            value = section[field.name]
            if dataclasses.is_dataclass(field.type) and type(value) is dict:
                value = _options(value, field.type, f"{key}.{field.name}", path, or_none)
            elif not (or_none and value is None) and not _fits(value, field.type, field.default):
                raise _refusal(path, f"{key}.{field.name}", _told(field.type), value)
            known[field.name] = value
    return known


def _refusal(path, key: str, expected: str, found) -> UserError:
    return UserError(
        f"{path} was refused: {key} is expected to be {expected}, found {quoted(found)} (nothing in the file was run)"
    )


def _told(kind) -> str:
    """A field's type in words: "a list of float", "str or None"."""
    inner = typing.get_args(kind)
    if typing.get_origin(kind) is typing.Union:
        return " or ".join(map(_told, inner))
    if typing.get_origin(kind) in (list, tuple):
        return f"a list of {_told(inner[0])}"
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return f"one of {', '.join(each.value for each in kind)}"
    if kind is typing.Any or not isinstance(kind, type):
        return "plain data"
    return "None" if kind is type(None) else kind.__name__


def _fits(value, kind, default=None) -> bool:
    """Whether a value is as one of a dataclass' field of type `kind` is written to a checkpoint."""
    inner = typing.get_args(kind)
    if kind is typing.Any:
        evaluated = isinstance(default, (tuple, list, int, float)) and isinstance(value, str)
        return _is_literal(value) if evaluated else _is_plain(value)
    if typing.get_origin(kind) is typing.Union:
        return any(_fits(value, each) for each in inner)
    if typing.get_origin(kind) in (list, tuple):
        return type(value) in (list, tuple) and all(_fits(each, inner[0]) for each in value)
    if typing.get_origin(kind) is dict:
        return type(value) is dict and all(_fits(each, one) for pair in value.items() for each, one in zip(pair, inner))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return type(value) is str and value in [each.value for each in kind]
    if kind is str:
        return _is_text(value)
    return type(value) in ((int, float) if kind is float else (kind,))


def _is_text(value) -> bool:
    """Text that omegaconf takes as it is: it resolves ``${...}``, and ``???`` stands for nothing."""
    return type(value) is str and "${" not in value and value != "???"


def _is_literal(text: str) -> bool:
    """Whether text that fairseq evaluates, as that of --adam-betas, is a number, a list or the like."""
    if len(text) > LONGEST_LITERAL or not _is_text(text):
        return False
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False
    return True


def _is_plain(value) -> bool:
    """Whether a value is numbers, text, and lists and dicts of them."""
    left, seen = [value], 0
    while left:
        each = left.pop()
        if type(each) in (list, tuple, dict):
            if seen + len(left) + len(each) > MOST_VALUES:
                return False
            left.extend([*each, *each.values()] if type(each) is dict else each)
        elif not _is_text(each) and type(each) not in (int, float, bool, type(None)):
            return False
        seen += 1
    return True


def _check_meters(state: dict, path) -> None:
    """The metrics of a run name classes of fairseq's too, which it calls."""
    metrics = (state.get("extra_state") or {}).get("metrics") or {}
    try:
        names = [name for entries in metrics.values() for _, _, name, _ in entries]
    except (AttributeError, TypeError, ValueError):
        raise _refusal(path, "extra_state.metrics", "lists of meters", metrics) from None
    for name in names:
        found = getattr(meters, name, None) if isinstance(name, str) else None
        if not isinstance(found, type) or not issubclass(found, meters.Meter):
            raise _refusal(path, "extra_state.metrics", "meters of fairseq", name)
