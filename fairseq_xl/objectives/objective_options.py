"""Objectives from --objectives and --objective-options, or from the options of a task."""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from enum import EnumMeta
from typing import Any, Optional, get_args, get_type_hints

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from fairseq_xl.data.framing import Framing
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io.options import option_name
from fairseq_xl.objectives.base import OBJECTIVES, Objective

NAME = re.compile("[A-Za-z0-9_-]+")  # of an objective: a part of names of metrics, heads and folders
#: types of options, for messages
TYPES = {float: "a number", int: "an integer", bool: "true or false", str: "text"}


def build_objectives(
    names: str, options: Optional[str], dictionary: XLDictionary, framing: Framing
) -> dict[str, Objective]:
    """Builds the objectives of ``--objectives`` with the options of ``--objective-options``.

    Args:
        names: names separated by commas, ``mlm,tlm``; those that read files may be renamed:
            ``mlm,xnli=classification,paws=classification``.
        options: options separated by spaces, ``mlm.mask_prob=0.2 tlm.weight=0.5``. Those of other objectives are
            checked but not used, so that one file of options serves any set of objectives.

    Returns: {name: Objective}. Raises `UserError` for an unknown objective, an unknown option or an ill-typed value.
    """
    parts = [part.strip() for part in names.split(",") if part.strip()]
    selected = dict(map(_parse_name, parts))
    unknown = sorted({kind for kind in selected.values() if kind not in OBJECTIVES})
    if unknown or not selected or len(selected) < len(parts):
        wrong = f"unknown {', '.join(unknown)}; " if unknown else ""
        listed = [_parse_name(part)[0] for part in parts]
        repeated = [f"{name} is named twice; " for name in dict.fromkeys(listed) if listed.count(name) > 1]
        expected = ", ".join(sorted(OBJECTIVES))
        wrong += "".join(repeated)
        raise UserError(f"--objectives {','.join(parts)!r}: {wrong}expected some of {expected}, or NAME=OBJECTIVE")
    for name, kind in selected.items():
        if name != kind and (reason := _name_error(name, kind)):
            raise UserError(f"--objectives {name}={kind}: {reason}")
    kinds = {name: name for name in OBJECTIVES} | selected
    settings: dict[str, list[str]] = {name: [] for name in kinds}
    for option in (options or "").split():
        key, equals, _ = option.partition("=")
        owner, dot, _ = key.partition(".")
        if not dot or not equals:
            owners = [name for name, kind in selected.items() if key in get_type_hints(OBJECTIVES[kind].Config)]
            example = f"{owners[0]}.{option}" if owners and equals else "mlm.length=128"
            raise UserError(f"--objective-options {option}: expected OBJECTIVE.OPTION=VALUE, such as {example}")
        if owner not in settings:
            suggestion = _suggestion(owner, settings, selected)
            raise UserError(f"--objective-options {option}: there is no objective {owner}; {suggestion}")
        settings[owner].append(option.removeprefix(f"{owner}."))
    configs = {
        name: _configure(name, OBJECTIVES[kinds[name]], values)
        for name, values in settings.items()
        if values or name in selected
    }
    objectives: dict[str, Objective] = {}
    for name, kind in selected.items():
        build: Any = OBJECTIVES[kind].class_for(configs[name])
        objectives[name] = build(configs[name], dictionary, framing, *([] if name == kind else [name]))
    return objectives


def _parse_name(part: str) -> tuple[str, str]:
    """``mlm`` -> (mlm, mlm), ``xnli=classification`` -> (xnli, classification)."""
    name, equals, kind = part.partition("=")
    return name, kind if equals else name


def _name_error(name: str, kind: str) -> Optional[str]:
    """The reason why an objective of this kind cannot have the name; None if it can."""
    if OBJECTIVES[kind].corpus_class.num_languages:
        return f"{kind} reads no files of its own, and has no other name than {kind}"
    if name in OBJECTIVES:
        return f"{name} is an objective: choose another name"
    return None if NAME.fullmatch(name) else "a name has letters, digits, _ and - only"


def settings_as_text(options: Any) -> Optional[str]:
    """``{"mlm": {"mask_prob": 0.2}}`` of YAML -> ``mlm.mask_prob=0.2``; text and None are returned as they are."""
    if options is None or isinstance(options, str):
        return options
    if not isinstance(options, Mapping) or not all(isinstance(settings, Mapping) for settings in options.values()):
        raise UserError(f"objective_options: expected {{OBJECTIVE: {{KEY: VALUE}}}} and found {quoted(options)}")
    return " ".join(
        f"{owner}.{key}={'null' if value is None else value}"
        for owner, settings in options.items()
        for key, value in settings.items()
    )


def _configure(name: str, objective: type[Objective], settings: list[str]) -> Any:
    config: Any = OmegaConf.structured(objective.Config)
    types = get_type_hints(objective.Config)
    for setting in settings:
        key, _, _ = setting.partition("=")
        if key not in types:
            suggestion = _suggestion(key, types, types)
            raise UserError(f"--objective-options {name}.{setting}: {name} has no option {key}; {suggestion}")
        is_text = types[key] in (str, Optional[str])
        try:
            config = OmegaConf.merge(config, OmegaConf.from_dotlist([_quoted(setting) if is_text else setting]))
            _ = config[key]  # resolves a reference
        except (OmegaConfBaseException, YAMLError):
            raise UserError(f"--objective-options {name}.{setting}: expected {_type_description(types[key])}") from None
    try:
        return OmegaConf.to_object(config)
    except UserError as error:  # of `ObjectiveConfig.require`
        raise UserError(f"--objective-options: {name}.{error}") from None


def _suggestion(word: str, words: Iterable[str], listed: Iterable[str]) -> str:
    """Advice about a wrong word: the nearest of the words, or else those that are `listed`."""
    nearest = difflib.get_close_matches(word, words, 1)
    return f"did you mean {nearest[0]}?" if nearest else f"expected one of {', '.join(listed)}"


def _type_description(kind: Any) -> str:
    if isinstance(kind, EnumMeta):
        return f"one of {', '.join(map(str, kind))}"
    return next((TYPES[type_] for type_ in (kind, *get_args(kind)) if type_ in TYPES), str(kind))


def config_of(kind: type[Objective], options: Any, names: Iterable[str], **values: Any) -> Any:
    """The options of an objective, from a task's options and `values`; `UserError` with the names of the task's."""
    common = [field.name for field in fields(kind.Config) if field.name in set(names) - values.keys()]
    try:
        return kind.Config(**{name: getattr(options, name) for name in common}, **values)
    except UserError as error:
        flags = rf"\b({'|'.join([*common, *values])})\b(=?)"
        raise UserError(re.sub(flags, lambda match: option_name(match[1]) + (match[2] and " "), str(error))) from None


def _quoted(setting: str) -> str:
    """``langs=no`` -> ``langs='no'``: text, where YAML may see a boolean or, in 100:0.5, a number of base 60."""
    key, _, value = setting.partition("=")
    return setting if value == "null" else f"""{key}='{value.replace("'", "''")}'"""
