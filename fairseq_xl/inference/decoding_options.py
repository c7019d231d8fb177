"""The options of generation: fields of fairseq's `GenerationConfig` that change the best hypothesis, and their values.

Imports neither torch nor fairseq.
"""

import numbers
from collections.abc import Callable
from typing import Any

from fairseq_xl.errors import UserError, check_number, quoted
from fairseq_xl.io.bounds import LARGEST_BEAM

#: option -> its type and, for numbers, the key of `fairseq_xl.errors.RANGES`; None: any finite number
OPTIONS: dict[str, tuple[type, str | None]] = {
    "beam": (int, "1 or more"),
    "max_len_a": (float, "0 or more"),
    "max_len_b": (int, "0 or more"),
    "lenpen": (float, None),
    "unkpen": (float, None),
    "unnormalized": (bool, None),
    "no_repeat_ngram_size": (int, "0 or more"),
    "sampling": (bool, None),
    "sampling_topk": (int, None),
    "sampling_topp": (float, None),
    "temperature": (float, "more than 0"),
}
_WANTED = {int: "a whole number", float: "a number", bool: "True or False"}
_NUMBERS = {int: numbers.Integral, float: numbers.Real}
SHORTEST = 3  # tokens of a source of one piece: <s> x </s>


def check_options(options: dict[str, Any], shown: Callable[[str], str] = str) -> None:
    """Raises `UserError` for unknown, wrong and conflicting options {field: value}; `shown` gives names in messages."""
    for name, value in options.items():
        if name not in OPTIONS:
            raise UserError(f"there is no option {shown(name)}: expected one of {', '.join(map(shown, OPTIONS))}")
        kind, expected = OPTIONS[name]
        check_value(shown(name), value, kind, expected)
        if name == "beam":
            check_number(shown(name), value, expected, LARGEST_BEAM)
    for name in ("sampling_topk", "sampling_topp"):
        if options.get(name, -1) >= 0 and not options.get("sampling"):
            raise UserError(f"{shown(name)} {options[name]}: {shown('sampling')} is needed too")
    factor, extra = options.get("max_len_a", 0), options.get("max_len_b", 200)
    if factor * SHORTEST + extra < 1:
        raise UserError(
            f"{shown('max_len_a')} {factor}, {shown('max_len_b')} {extra}: the text for a source of {SHORTEST} tokens "
            "would have no token: raise one of them"
        )


def check_value(name: str, value: Any, kind: type, expected: str | None = None) -> None:
    """Raises `UserError` unless a value, of numpy too, is of a type, int, float or bool, and in a range of `RANGES`."""
    is_bool = isinstance(value, bool)
    if is_bool != (kind is bool) or not (is_bool or isinstance(value, _NUMBERS[kind])):
        raise UserError(f"{name}: expected {_WANTED[kind]}, found {quoted(value)}")
    if not is_bool:
        check_number(name, value, expected)
