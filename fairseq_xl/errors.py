"""Errors that a user can correct, as opposed to defects of the program."""

import argparse
import functools
import math
import re
import reprlib
from collections.abc import Callable, Sequence
from typing import Any

from fairseq_xl.io.bounds import LARGEST

QUOTED = 100  # characters of a wrong value that a message shows
LISTED = 20  # problems of files that a message shows
_REPR = reprlib.Repr()
_REPR.maxlevel, _REPR.maxlist, _REPR.maxtuple, _REPR.maxdict, _REPR.maxstring, _REPR.maxother = 2, 10, 10, 10, 80, 80

#: values of ``range`` in the metadata of a dataclass field -> test of a number. Probabilities, of dropout
#: and label smoothing, must be below 1
RANGES = {
    "0 or more": lambda number: number >= 0,
    "1 or more": lambda number: number >= 1,
    "1 to 1000": lambda number: 1 <= number <= 1000,
    "0 to 1000": lambda number: 0 <= number <= 1000,
    "more than 0": lambda number: number > 0,
    "probability": lambda number: 0 <= number < 1,
}
QUOTED_NAME = "a name is expected; fairseq-hydra-train reads no, on and off in YAML as false or true: quote it, 'no'"
#: of a task, for messages
GENERATES_NOTHING = (
    "generates no text: `fairseq-xl predict CHECKPOINT DATA` predicts classes, tags and answers of unlabeled text; a "
    "model of the objective generation writes text with --task xl_generation"
)
#: a language code that a user gives: "-" separates the languages of a pair and "." the parts of fairseq's file names
LANGUAGE = re.compile(r"[A-Za-z0-9_]+")


class UserError(ValueError):
    """An error that the user can correct: a wrong path, option, file or corpus.

    The message is one sentence: what is wrong and, where it helps, what to do. Commands show it without a traceback and
    end with status 1 (`fairseq_xl.io.error_reporting`).
    """


def quoted(value: object) -> str:
    """A value as messages show it: at most `QUOTED` characters of its repr."""
    try:
        text = " ".join(_REPR.repr(value).split())
    except ValueError:  # an integer of more digits than Python writes (sys.set_int_max_str_digits)
        text = f"a {type(value).__name__} with a number of thousands of digits"
    return text if len(text) <= QUOTED else f"{text[:QUOTED]} …"


def listed(problems: Sequence[str], count: int | None = None) -> str:
    """Problems as a message: the only one, or the `count` of all and the first `LISTED`, each on its own line."""
    count = len(problems) if count is None else count
    if count == 1:
        return problems[0]
    last_line = f"\n  and {count - LISTED} more" if count > LISTED else ""
    return f"{count} problems:" + "".join(f"\n  - {problem}" for problem in problems[:LISTED]) + last_line


def names_of(option: str, text: str) -> list[str]:
    """``en,de`` -> [en, de]; raises `UserError` for a name that occurs twice, is empty or has white space around it."""
    names = text.split(",")
    for name in names:
        if not name or name != name.strip():
            raise UserError(f"{option} {quoted(text)}: expected names joined by commas, without spaces")
        if name in ("True", "False"):
            raise UserError(f"{option} {text}: {QUOTED_NAME}")
        if names.count(name) > 1:
            raise UserError(f"{option} {text}: {name} is named twice")
    return names


def named_values(option: str, arguments: Sequence[str], expected: str) -> dict[str, str]:
    """``["en=a", "de=b"]`` -> {"en": "a", "de": "b"}; `UserError` for another form than `expected`, or a name twice."""
    values: dict[str, str] = {}
    for argument in arguments:
        name, _, value = argument.partition("=")
        where = f"{option} {argument}".strip()
        if not name or not value:
            raise UserError(f"{where}: expected {expected}")
        if name in values:
            raise UserError(f"{where}: {name} is named twice")
        values[name] = value
    return values


def check_language(where: str, code: str) -> None:
    """Raises `UserError` if `code`, from an option or place `where`, is no language code."""
    if not LANGUAGE.fullmatch(code):
        raise UserError(f"{where}: {quoted(code)} is not a language code of letters, digits and _, such as en or zh_CN")


def language_codes(option: str, text: str) -> list[str]:
    """``en,de`` -> [en, de]; raises `UserError` for a code of another form, and as `names_of`."""
    codes = names_of(option, text)
    for code in codes:
        check_language(option, code)
    return codes


def language_pair(where: str, text: str) -> tuple[str, str]:
    """``en-de`` -> (en, de); raises `UserError` for anything but two different language codes."""
    source, _, target = text.partition("-")
    if not (LANGUAGE.fullmatch(source) and LANGUAGE.fullmatch(target)) or source == target:
        raise UserError(f"{where}: {quoted(text)} is not a pair of two different languages, such as en-de")
    return source, target


def check_number(option: str, value: float, expected: str | None = None, below: float = LARGEST) -> None:
    """Raises `UserError` for a number outside the range `expected`, a key of `RANGES`, or not below `below`.

    `below` is one of `fairseq_xl.io.bounds`.
    """
    if expected is not None and not RANGES[expected](value):
        range_text = "a probability from 0 to below 1" if expected == "probability" else expected
        raise UserError(f"{option} {value}: {range_text} is needed")
    if not math.isfinite(value) or abs(value) >= below:
        raise UserError(f"{option} {value}: a number below {below} is needed")


def in_range(kind: type, expected: str | None = None, below: float = LARGEST) -> Any:
    """The `action` of a number of a command line: stores it, or raises `UserError` as `check_number` does."""
    return functools.partial(_Number, type=kind, expected=expected, below=below)


class _Number(argparse.Action):
    def __init__(self, *args: Any, expected: str | None, below: float, **options: Any) -> None:
        super().__init__(*args, **options)
        self.expected, self.below = expected, below

    def __call__(self, parser: Any, namespace: Any, value: Any, option: str | None = None) -> None:
        check_number(option or str(self.metavar), value, self.expected, self.below)
        setattr(namespace, self.dest, value)


#: the `action` of an integer of a command line that is 1 or more
positive_integer = in_range(int, "1 or more")
#: the same for one that is 0 or more
natural_number = in_range(int, "0 or more")


def check_ranges(dataclass: Any, options: Any, field_name: Callable[[str], str] | None = None) -> None:
    """Raises `UserError` for the first value of `options` outside the range of its field in `dataclass`.

    Args:
        named: gives the name of a field in the message; None: that of its flag.
    """
    for name, field in dataclass.__dataclass_fields__.items():
        value = getattr(options, name, None)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            shown = field_name(name) if field_name else f"--{name.replace('_', '-')}"
            check_number(shown, value, field.metadata.get("range"))
