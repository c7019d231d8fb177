"""Flags of fairseq's commands from YAML files, for ``recipes/launch.py`` and ``fairseq-xl rehearse``; YAML's errors.

Each file maps flags to values: ``lr: 0.0005`` means ``--lr 0.0005``, ``fp16: true`` means ``--fp16``. A later file
overrides an earlier one, and ``null`` removes a flag. ``--objective-options`` are merged setting by setting;
``mlm.batch_sentences=null`` removes one. Aliases (``*name``) are refused.

This module imports neither torch nor fairseq, nor other modules of this package: ``recipes/launch.py`` loads it from
its file, also where the package is not installed.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

OBJECTIVE_OPTIONS = "--objective-options"
WARMUP_SHARE = "--warmup-share"


class FlagsError(Exception):
    """Raised for a configuration file that is not a mapping of flags; the message names the file."""


def flags(paths: Sequence[str | Path]) -> list[str]:
    """Merges YAML files into a list of command-line arguments; later files override. Raises `FlagsError`."""
    files = [read(path) for path in paths]
    merged: Any = OmegaConf.merge(*files)
    settings: list[str] = []
    values: Any
    for values in map(OmegaConf.to_container, files):
        if OBJECTIVE_OPTIONS[2:] in values:
            text = values[OBJECTIVE_OPTIONS[2:]]
            settings = [] if text is None else [*settings, str(text)]
    if settings:
        merged[OBJECTIVE_OPTIONS[2:]] = " ".join(settings)
    try:
        values = OmegaConf.to_container(merged, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:  # ${...} of an undefined key
        raise FlagsError(f"{', '.join(map(str, paths))}: {error.full_key}: {str(error).splitlines()[0]}") from error
    arguments: list[str] = []
    for key, value in values.items():
        if value is True:
            arguments.append(f"--{key}")
        elif value is not None and value is not False:
            arguments += [f"--{key}", str(value)]
    return merge_objective_options(arguments)


def file_of(paths: Sequence[str | Path], flag: str) -> str | Path | None:
    """The last of some YAML files that has ``--flag``; None if none of them has it. Raises `FlagsError`."""
    return next((path for path in reversed(paths) if flag.startswith("--") and flag[2:] in read(path)), None)


def merge_objective_options(arguments: Iterable[str]) -> list[str]:
    """Merges all --objective-options of the arguments into one; the last value of a setting is used."""
    others: list[str] = []
    settings: dict[str, str] = {}
    place = None
    rest = iter(arguments)
    for argument in rest:
        flag, equals, value = argument.partition("=")
        if flag != OBJECTIVE_OPTIONS:
            others.append(argument)
            continue
        place = len(others) if place is None else place
        value = value if equals else next(rest, "")
        settings |= {setting.partition("=")[0]: setting for setting in value.split()}
    if place is None:
        return others
    return [*others[:place], OBJECTIVE_OPTIONS, " ".join(settings.values()), *others[place:]]


def split_warmup_share(arguments: Iterable[str]) -> tuple[list[str], str | None, int | None]:
    """Returns the arguments without --warmup-share, its last value, and its index among them; None without it."""
    others: list[str] = []
    share, place = None, None
    rest = iter(arguments)
    for argument in rest:
        flag, equals, value = argument.partition("=")
        if flag == WARMUP_SHARE:
            share, place = value if equals else next(rest, ""), len(others)
        else:
            others.append(argument)
    return others, share, place


def read(path: str | Path) -> Any:
    """Reads the flags and values of one file. Raises `FlagsError` if it is not a mapping of flags."""
    try:
        check_events(path)
        return OmegaConf.load(path)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise FlagsError(reading_problem(path, error)) from error
    except OmegaConfBaseException as error:
        raise FlagsError(f"{path}: {str(error).splitlines()[0]}") from error


def reading_problem(path: str | Path, error: Exception) -> str:
    """The sentence about an error of reading a YAML file: `OSError`, `UnicodeDecodeError` or `yaml.YAMLError`."""
    if isinstance(error, UnicodeDecodeError):
        return f"{path} is not UTF-8: it has the byte 0x{error.object[error.start]:02x}"
    if isinstance(error, OSError):
        return f"{path}: {error.strerror}"
    mark = getattr(error, "problem_mark", None)
    where = f" in line {mark.line + 1}" if mark else ""
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error).splitlines()[0]
    return f"{path} is not YAML{where}: {problem}"


def check_events(path: str | Path) -> None:
    """Raises `FlagsError` unless a file is one flat mapping: nested aliases could expand to billions of values."""
    flat = False  # whether the mapping has begun
    with open(path, encoding="utf-8") as stream:
        for event in yaml.parse(stream, Loader=yaml.SafeLoader):
            where = f"{path}, line {event.start_mark.line + 1}"
            if not flat and isinstance(event, (yaml.ScalarEvent, yaml.SequenceStartEvent)):
                raise FlagsError(f"{where}: expected lines 'flag: value'")
            if flat and isinstance(event, yaml.CollectionStartEvent):
                raise FlagsError(f"{where}: a flag has one value, found a list or a mapping")
            flat = flat or isinstance(event, yaml.MappingStartEvent)
    if not flat:
        raise FlagsError(f"{path} is empty: expected lines 'flag: value'")
