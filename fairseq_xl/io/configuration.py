"""Checks of a checkpoint's configuration before anything is built: only classes of this package, only plain data.

Several architectures, tasks and criterions of fairseq evaluate strings of their options as Python. A checkpoint names
the class and the strings: without these checks it could run any code on the machine that reads it.
"""

import argparse
import collections
import dataclasses
import enum
import math
import re
import types
import typing
from collections.abc import Collection, Mapping

import torch
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY, CRITERION_REGISTRY
from fairseq.dataclass.configs import FairseqConfig
from fairseq.logging import meters
from fairseq.models import ARCH_MODEL_NAME_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY

from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io.options import EVALUATED, check_literals, literal

#: sections of the configuration that fairseq builds an object from -> (registry of classes, registry of dataclasses)
BUILT = {
    "model": (ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY),
    "task": (TASK_REGISTRY, TASK_DATACLASS_REGISTRY),
    "criterion": (CRITERION_REGISTRY, CRITERION_DATACLASS_REGISTRY),
}
#: criterions of fairseq that a checkpoint may name: they evaluate no strings
FAIRSEQ_CRITERIONS = {"cross_entropy", "label_smoothed_cross_entropy"}
#: models of fairseq that a checkpoint of its own loop may name: they evaluate no strings and load no other model
FAIRSEQ_MODELS = {"transformer", "transformer_lm"}
#: keys that are removed: sections that only fairseq's hub interface uses, and the name of the configuration
IGNORED_SECTIONS = {"bpe", "tokenizer", "_name"}
#: options that name files to write: taken from the command line, never from a checkpoint
OUTPUTS = {"corrupted_to", "predictions_to", "results_path"}
#: parameters with a row for each symbol
OF_SYMBOLS = re.compile(r"(token_embeddings\.table|words)\.weight$")
MAX_VALUES = 10_000  # values of an option of type Any; a list that occurs twice counts twice
OUR_PACKAGE = __package__.split(".")[0]


def check_configuration(state: dict, path: object) -> dict:
    """Returns a checkpoint, read from the file `path`, with a configuration that is safe to build from.

    Its classes are those of this package or `FAIRSEQ_CRITERIONS`. Its options have the types of their dataclass fields
    and are plain data: no string that omegaconf would resolve, none but literals where fairseq evaluates strings.
    Options unknown to this version are removed, and `OUTPUTS` are None. The number of attention heads, which shapes of
    weights do not show, is that of the identity. Raises `UserError` with the file and the key.
    """
    if state.get("args") is not None:
        raise _refusal(path, "args", "nothing: the configuration is under 'cfg'", state["args"])
    _check_meters(state, path)
    if state.get("cfg") is None:
        return state
    if type(state["cfg"]) is not dict:
        content = quoted(state["cfg"])
        raise UserError(f"{path} is not a fairseq checkpoint: 'cfg' is expected to be a dict, found {content}")
    checked: dict[str, typing.Any] = {}
    for field in dataclasses.fields(FairseqConfig):
        section, key = state["cfg"].get(field.name), f"cfg.{field.name}"
        if field.name in IGNORED_SECTIONS or section is None:
            checked[field.name] = None
        elif field.name in BUILT:
            checked[field.name] = _known_options(section, _options_dataclass(section, field.name, path), key, path)
        elif dataclasses.is_dataclass(field.type):
            checked[field.name] = _known_options(section, field.type, key, path, or_none=True)
        else:  # such as the optimizer; fairseq keeps options of classes without a dataclass in a Namespace
            plain = vars(section) if type(section) is argparse.Namespace else section
            name = plain.get("_name") if type(plain) is dict and isinstance(plain.get("_name"), str) else None
            kind = REGISTRIES[field.name]["dataclass_registry"].get(name)
            if kind is None and not _is_plain(plain):
                raise _refusal(path, key, "plain data", section)
            checked[field.name] = section if kind is None else _known_options(section, kind, key, path, or_none=True)
    model, identity = checked.get("model") or {}, (state.get("task_state") or {}).get("fairseq_xl")
    check_size(model, state.get("model"), path)
    heads = identity.get("heads") if isinstance(identity, dict) else None
    if type(heads) is int and model.get("heads", heads) != heads:
        raise _refusal(path, "cfg.model.heads", f"{heads} as in task_state.fairseq_xl", model["heads"])
    return {**state, "cfg": {name: section for name, section in checked.items() if name in state["cfg"]}}


def check_plain_configuration(state: dict, path: object) -> dict:
    """Returns the content of a checkpoint of fairseq's own loop, whose task is the command line's, not the file's.

    fairseq builds the model that the file names. Raises `UserError` unless that is one of `FAIRSEQ_MODELS`, and the
    configuration plain data, without text that fairseq or omegaconf would evaluate; options of legacy classes are in a
    Namespace.
    """
    if state.get("args") is not None or type(state.get("cfg")) is not dict:
        raise _refusal(path, "cfg", "the configuration, as a dict", state.get("args") or state.get("cfg"))
    _check_meters(state, path)
    for name, section in state["cfg"].items():
        if not _is_plain(vars(section) if type(section) is argparse.Namespace else section):
            raise _refusal(path, f"cfg.{name}", "plain data", section)
    try:
        check_literals(state["cfg"])
    except UserError as error:
        raise UserError(f"{path} was refused: {error}") from error
    model = state["cfg"].get("model")
    options = vars(model) if type(model) is argparse.Namespace else model if type(model) is dict else {}
    name = options.get("_name") or options.get("arch")
    if ARCH_MODEL_NAME_REGISTRY.get(str(name), name) not in FAIRSEQ_MODELS:
        raise _refusal(path, "cfg.model", f"a model of {' or '.join(sorted(FAIRSEQ_MODELS))}", name)
    return state


def check_size(options: Mapping[str, typing.Any], parameters: object, path: object) -> None:
    """Raises `UserError` for a model larger than the file's parameters: it would be built before they are read."""
    if not isinstance(parameters, dict):
        return
    shapes = {name: tuple(value.shape) for name, value in parameters.items() if isinstance(value, torch.Tensor)}
    weights = sum(map(math.prod, shapes.values()))
    numbers = {name: value for name, value in options.items() if type(value) is int and value > 0}
    size = collections.defaultdict(int, numbers)
    width, layers = size["embed_dim"], size["layers"] + size["encoder_layers"] + size["decoder_layers"]
    rows = max((shape[0] for name, shape in shapes.items() if shape and OF_SYMBOLS.search(name)), default=0)
    layer = width**2
    if "ffn_dim" in options:  # a Transformer, with position embeddings
        layer = width * (4 * width + 2 * size["ffn_dim"] + 2 * size["adapters"])
        rows += size["max_positions"] + size["position_offset"] + size["predicting_streams"]
    least = layers * layer + width * (rows + size["decoder_layers"] * size["relative_buckets"] * size["heads"])
    if least > weights:
        sizes = ", ".join(f"{name} {count}" for name, count in numbers.items())
        raise UserError(f"{path} was refused: it has {weights:,} weights, and a model of {sizes} has {least:,} or more")


def check_values(values: dict, kinds: dict, key: str, path: object, required: Collection[str]) -> None:
    """Raises `UserError` for missing values, and values of other `kinds`, under `key` of the file `path`."""
    if missing := set(required) - values.keys():
        raise UserError(f"{path} is damaged: its identity lacks {', '.join(sorted(missing))}")
    for name in values.keys() & kinds.keys():
        if not _has_type(values[name], kinds[name]):
            raise _refusal(path, f"{key}.{name}", _type_name(kinds[name]), values[name])


def registered_model(architecture: str | None) -> tuple[typing.Any, typing.Any]:
    """The model class and the config dataclass that are registered as an architecture; None, None for another name."""
    return ARCH_MODEL_REGISTRY.get(architecture), MODEL_DATACLASS_REGISTRY.get(architecture)


def section_of(kind: type) -> str | None:
    """The section of a configuration that has the options of a dataclass; None for one that is not registered."""
    sections = {name: kinds for name, (_, kinds) in BUILT.items()}
    sections |= {name: registry["dataclass_registry"] for name, registry in REGISTRIES.items()}
    return next((name for name, kinds in sections.items() if kind in kinds.values()), None)


def _options_dataclass(section: typing.Any, part: str, path: object) -> typing.Any:
    classes, options = BUILT[part]
    name = section.get("_name") if type(section) is dict else None
    model_class = classes.get(name) if isinstance(name, str) else None
    is_plugin = model_class is not None and model_class.__module__.split(".")[0] == OUR_PACKAGE
    if (not is_plugin and (part != "criterion" or name not in FAIRSEQ_CRITERIONS)) or name not in options:
        alternatives = f", {' or '.join(sorted(FAIRSEQ_CRITERIONS))}" if part == "criterion" else ""
        expected = f"a {part} of fairseq_xl{alternatives}"
        raise _refusal(path, f"cfg.{part}._name", expected, section if type(section) is not dict else name)
    return options[name]


def _known_options(section: typing.Any, kind: typing.Any, key: str, path: object, or_none: bool = False) -> dict:
    """The options of a section that its dataclass `kind` has, with their types checked."""
    if type(section) is not dict:
        raise _refusal(path, key, "a dict", section)
    options = {}
    for field in dataclasses.fields(kind):
        if field.name in OUTPUTS:
            options[field.name] = None
        elif field.name in section:
            value = section[field.name]
            if dataclasses.is_dataclass(field.type) and type(value) is dict:
                value = _known_options(value, field.type, f"{key}.{field.name}", path, or_none)
            elif (field.name in EVALUATED and isinstance(value, str) and not _is_literal(value)) or (
                not (or_none and value is None) and not _has_type(value, field.type, field.default)
            ):
                raise _refusal(path, f"{key}.{field.name}", _type_name(field.type), value)
            options[field.name] = value
    return options


def _refusal(path: object, key: str, expected: str, value: object) -> UserError:
    return UserError(
        f"{path} was refused: {key} is expected to be {expected}, found {quoted(value)} (nothing in the file was run)"
    )


def _type_name(kind: typing.Any) -> str:
    """A field's type in words, such as "a list of float" or "str or None"."""
    inner = typing.get_args(kind)
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return " or ".join(map(_type_name, inner))
    if typing.get_origin(kind) in (list, tuple):
        return f"a list of {_type_name(inner[0])}"
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return f"one of {', '.join(member.value for member in kind)}"
    if kind is typing.Any or not isinstance(kind, type):
        return "plain data"
    return "None" if kind is type(None) else kind.__name__


def _has_type(value: typing.Any, kind: typing.Any, default: object = None) -> bool:
    """Whether a value has the form in which checkpoints store a field of type `kind`."""
    inner = typing.get_args(kind)
    if kind is typing.Any:
        evaluated = isinstance(default, (tuple, list, int, float)) and isinstance(value, str)
        return _is_literal(value) if evaluated else _is_plain(value)
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return any(_has_type(value, option) for option in inner)
    if typing.get_origin(kind) in (list, tuple):
        return type(value) in (list, tuple) and all(_has_type(item, inner[0]) for item in value)
    if typing.get_origin(kind) is dict:
        parts = [part for pair in value.items() for part in zip(pair, inner)] if type(value) is dict else None
        return parts is not None and all(_has_type(part, expected) for part, expected in parts)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return type(value) is str and value in [member.value for member in kind]
    if kind is str:
        return _is_text(value)
    return type(value) in ((int, float) if kind is float else (kind,))


def _is_text(value: object) -> bool:
    """Whether a value is a string that omegaconf does not interpret: no ``${...}``, not ``???`` (missing)."""
    return type(value) is str and "${" not in value and value != "???"


def _is_literal(text: str) -> bool:
    """Whether a string that fairseq evaluates, such as --adam-betas, is a Python literal."""
    try:
        literal(text)
    except UserError:
        return False
    return _is_text(text)


def _is_plain(value: typing.Any) -> bool:
    """Whether a value consists of numbers, strings, None, and lists and dicts of them, `MAX_VALUES` at most."""
    values = [value]
    for item in values:  # which grows
        if type(item) in (list, tuple, dict):
            values += [*item, *item.values()] if type(item) is dict else item
        elif not _is_text(item) and type(item) not in (int, float, bool, type(None)):
            return False
        if len(values) > MAX_VALUES:
            return False
    return True


def _check_meters(state: dict, path: object) -> None:
    """Raises `UserError` for stored metrics that name anything but fairseq's meters, which fairseq would call."""
    metrics = (state.get("extra_state") or {}).get("metrics") or {}
    try:
        names = [name for entries in metrics.values() for _, _, name, _ in entries]
    except (AttributeError, TypeError, ValueError):
        raise _refusal(path, "extra_state.metrics", "lists of meters", metrics) from None
    for name in names:
        meter = getattr(meters, name, None) if isinstance(name, str) else None
        if not isinstance(meter, type) or not issubclass(meter, meters.Meter):
            raise _refusal(path, "extra_state.metrics", "meters of fairseq", name)
