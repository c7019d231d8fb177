"""Flags of fairseq's commands from YAML files, for ``recipes/launch.py`` and ``fairseq-xl rehearse``.

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

SETTINGS = "--objective-options"
SHARE = "--warmup-share"


class NoFlags(Exception):
    """Raised for a configuration file that is not a mapping of flags; the message names the file."""


def flags(paths: Sequence[str | Path]) -> list[str]:
    """Merges YAML files into a list of command-line arguments; later files override. Raises `NoFlags`."""
    files = [read(path) for path in paths]
    merged: Any = OmegaConf.merge(*files)
    settings: list[str] = []
    values: Any
    for values in map(OmegaConf.to_container, files):
        if SETTINGS[2:] in values:
            text = values[SETTINGS[2:]]
            settings = [] if text is None else [*settings, str(text)]
    if settings:
        merged[SETTINGS[2:]] = " ".join(settings)
    try:
        values = OmegaConf.to_container(merged, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:  # ${...} of an undefined key
        raise NoFlags(f"{', '.join(map(str, paths))}: {error.full_key}: {str(error).splitlines()[0]}") from error
    arguments: list[str] = []
    for key, value in values.items():
        if value is True:
            arguments.append(f"--{key}")
        elif value is not None and value is not False:
            arguments += [f"--{key}", str(value)]
    return one_of_settings(arguments)


def one_of_settings(arguments: Iterable[str]) -> list[str]:
    """Merges all --objective-options of the arguments into one; the last value of a setting is used."""
    others: list[str] = []
    settings: dict[str, str] = {}
    place = None
    rest = iter(arguments)
    for argument in rest:
        flag, equals, value = argument.partition("=")
        if flag != SETTINGS:
            others.append(argument)
            continue
        place = len(others) if place is None else place
        value = value if equals else next(rest, "")
        settings |= {setting.partition("=")[0]: setting for setting in value.split()}
    return others if place is None else [*others[:place], SETTINGS, " ".join(settings.values()), *others[place:]]


def without_share(arguments: Iterable[str]) -> tuple[list[str], str | None, int | None]:
    """Returns the arguments without --warmup-share, its last value, and its place among them; None without one."""
    others: list[str] = []
    share, place = None, None
    rest = iter(arguments)
    for argument in rest:
        flag, equals, value = argument.partition("=")
        if flag == SHARE:
            share, place = value if equals else next(rest, ""), len(others)
        else:
            others.append(argument)
    return others, share, place


def read(path: str | Path) -> Any:
    """Reads the flags and values of one file. Raises `NoFlags` if it is not a mapping of flags."""
    try:
        check_events(path)
        return OmegaConf.load(path)
    except UnicodeDecodeError as error:
        raise NoFlags(f"{path} is not UTF-8: it has the byte 0x{error.object[error.start]:02x}") from error
    except OSError as error:
        raise NoFlags(f"{path}: {error.strerror}") from error
    except yaml.YAMLError as error:  # str(error) has several lines
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", "")
        raise NoFlags(f"{path} is not YAML{where}: {problem}") from error
    except OmegaConfBaseException as error:
        raise NoFlags(f"{path}: {str(error).splitlines()[0]}") from error


def check_events(path: str | Path) -> None:
    """Raises `NoFlags` unless a file is one flat mapping: nested aliases could expand to billions of values."""
    flat = False  # whether the mapping has begun
    with open(path, encoding="utf-8") as stream:
        for event in yaml.parse(stream, Loader=yaml.SafeLoader):
            where = f"{path}, line {event.start_mark.line + 1}"
            if not flat and isinstance(event, (yaml.ScalarEvent, yaml.SequenceStartEvent)):
                raise NoFlags(f"{where}: expected lines 'flag: value'")
            if flat and isinstance(event, yaml.CollectionStartEvent):
                raise NoFlags(f"{where}: a flag has one value, found a list or a mapping")
            flat = flat or isinstance(event, yaml.MappingStartEvent)
    if not flat:
        raise NoFlags(f"{path} is empty: expected lines 'flag: value'")
