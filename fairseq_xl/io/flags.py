"""Flags of fairseq's commands from YAML files: ``--config FILE``, as often as there are files.

Each file maps flags to values: ``lr: 0.0005`` means ``--lr 0.0005``, ``fp16: true`` means ``--fp16``. A later file
overrides an earlier one, the command line overrides all files, and ``null`` removes a flag. One precision replaces
another, as ``--bf16`` does ``fp16: true``. ``--objective-options`` are merged setting by setting;
``mlm.batch_sentences=null`` removes one. References (``${name}``) are refused.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io.yaml_files import load

CONFIG = "--config"
OBJECTIVE_OPTIONS = "--objective-options"
#: flag -> precision; a later file or the command line replaces all flags of another precision
PRECISIONS = {
    "fp16": "fp16",
    "memory-efficient-fp16": "fp16",
    "bf16": "bf16",
    "memory-efficient-bf16": "bf16",
    "amp": "amp",
}


def config_files(arguments: Iterable[str]) -> tuple[list[str], list[str]]:
    """The arguments without --config, and its files; raises `UserError` if one is missing."""
    remaining, values = without(CONFIG, arguments)
    files = [path for _, path in values]
    for path in files:
        if not path or path.startswith("-"):
            raise UserError(f"{CONFIG}: name a YAML file of flags")
        for flag in sorted({"user-dir", CONFIG[2:]} & read(path).keys()):
            raise UserError(f"{path}: {flag}: --{flag} stands on the command line only")
    return remaining, files


def expanded(arguments: Sequence[str]) -> list[str]:
    """The arguments of a command, with the flags of the --config files in front of its own; raises `UserError`."""
    remaining, files = config_files(arguments)
    if not files:
        return list(arguments)
    first = next((index for index, word in enumerate(remaining) if word.startswith("-")), len(remaining))
    return [*remaining[:first], *overridden(files, remaining[first:])]


def flags(paths: Sequence[str | Path], keywords: Mapping[str, Any] | None = None) -> list[str]:
    """Merges YAML files into a list of command-line arguments; later files override. Raises `UserError`.

    `keywords` are flags with underscores, which override the files.
    """
    merged: dict[str, Any] = {}
    settings: list[str] = []
    sources: list[tuple[str | Path, dict[str, Any]]] = [(path, read(path)) for path in paths]
    last = {name.replace("_", "-"): value for name, value in (keywords or {}).items()}
    for path, values in [*sources, ("keyword arguments", checked(last, "keyword arguments"))]:
        if OBJECTIVE_OPTIONS[2:] in values:
            text = values[OBJECTIVE_OPTIONS[2:]]
            settings = [] if text is None else [*settings, str(text)]
        if _precision(values, path):
            merged = {flag: value for flag, value in merged.items() if flag not in PRECISIONS}
        merged |= values
    if settings:
        merged[OBJECTIVE_OPTIONS[2:]] = " ".join(settings)
    arguments: list[str] = []
    for key, value in merged.items():
        if value is True:
            arguments.append(f"--{key}")
        elif value is not None and value is not False:
            arguments += [f"--{key}", str(value)]
    return merge_objective_options(arguments)


def overridden(paths: Sequence[str | Path], command_line: Sequence[str]) -> list[str]:
    """The flags of YAML files and of a command line, which overrides them; raises `UserError` as `flags`."""
    precision = any(argument.partition("=")[0].removeprefix("--") in PRECISIONS for argument in command_line)
    arguments = [flag for flag in flags(paths) if not precision or flag.removeprefix("--") not in PRECISIONS]
    return merge_objective_options([*arguments, *command_line])


def _precision(values: dict[str, Any], path: str | Path) -> str | None:
    """The precision of a file's flags; raises `UserError` for two precisions."""
    precisions = {PRECISIONS[flag]: flag for flag, value in values.items() if flag in PRECISIONS and value is True}
    if len(precisions) > 1:
        raise UserError(f"{path}: {' and '.join(precisions.values())} exclude each other: choose one of them")
    return next(iter(precisions), None)


def file_of(paths: Sequence[str | Path], flag: str) -> str | Path | None:
    """The last of some YAML files that has ``--flag``; None if none of them has it. Raises `UserError`."""
    return next((path for path in reversed(paths) if flag.startswith("--") and flag[2:] in read(path)), None)


def merge_objective_options(arguments: Iterable[str]) -> list[str]:
    """Merges all --objective-options of the arguments into one; the last value of a setting is used."""
    remaining, values = without(OBJECTIVE_OPTIONS, arguments)
    if not values:
        return remaining
    settings = {setting.partition("=")[0]: setting for _, value in values for setting in value.split()}
    index = values[0][0]
    return [*remaining[:index], OBJECTIVE_OPTIONS, " ".join(settings.values()), *remaining[index:]]


def option_value(arguments: Iterable[str], option: str) -> str | None:
    """The last value of an option among arguments; None without it."""
    values = without(option, arguments)[1]
    return values[-1][1] if values else None


def named_arch(arguments: Sequence[str]) -> str | None:
    """The architecture that --arch or -a names; None without them."""
    return option_value(arguments, "--arch") or option_value(arguments, "-a")


def without(flag: str, arguments: Iterable[str]) -> tuple[list[str], list[tuple[int, str]]]:
    """The arguments without a flag, and its values, each with its index among them."""
    remaining: list[str] = []
    values: list[tuple[int, str]] = []
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if name == flag:
            values.append((len(remaining), value if equals else next(rest, "")))
        else:
            remaining.append(argument)
    return remaining, values


def read(path: str | Path) -> dict[str, Any]:
    """Reads the flags and values of one file. Raises `UserError` if it is not a flat mapping of flags."""
    content = load(path)
    if not isinstance(content, dict):
        description = "an empty file" if content is None else quoted(content)
        raise UserError(f"{path}: expected lines 'flag: value', found {description}")
    return checked(content, path)


def checked(values: dict[str, Any], path: str | Path) -> dict[str, Any]:
    """Returns flags and values, which `path` has; raises `UserError` for a value that is none of a flag."""
    for flag, value in values.items():
        if isinstance(value, (list, dict)):
            instead = ""
            if isinstance(value, list) and not any(isinstance(item, (list, dict)) for item in value):
                listed = ",".join(map(str, value))  # of betas, which fairseq reads as a tuple, in brackets
                instead = f': write "({listed})"' if flag.endswith("betas") else f': write "{listed}"'
            raise UserError(f"{path}: {flag}: a flag has one value, found {quoted(value)}{instead}")
        if "${" in str(value) or value == "???":
            raise UserError(f"{path}: {flag}: expected a value, found the reference {quoted(value)}")
    return values
