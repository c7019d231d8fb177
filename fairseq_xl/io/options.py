"""Options: their fields in dataclasses, and their names on a command line."""

import contextlib
from collections.abc import Iterable
from dataclasses import field
from typing import Any

from fairseq_xl.errors import UserError

AUTO = "auto"  # --updates-per-epoch: as many as one pass over the data needs
#: metadata of an option of a model: the first part of a model whose weights mean something else if the option differs,
#: and the value of the option that describes models without it
TRANSFER, ABSENT = "transfer", "absent"
UPDATES = 1000  # of an epoch of pre-training, by default


def option(default: Any, help_text: str, **metadata: Any) -> Any:
    """A field of a dataclass with its sentence in ``--help`` and further metadata, such as `range`."""
    return field(default=default, metadata={"help": help_text, **metadata})


def option_name(name: str) -> str:
    """The name of a field on a command line: --max-tokens for max_tokens."""
    return f"--{name.replace('_', '-')}"


def changed(options: Any, dataclass: type) -> Iterable[str]:
    """The names of the options that are not at their default."""
    fields = dataclass.__dataclass_fields__  # type: ignore[attr-defined]
    for name, option_field in fields.items():
        default = option_field.default
        if not (isinstance(default, str) and default.startswith("${")) and getattr(options, name, default) != default:
            yield name


def number_of_updates(value: Any) -> Any:
    """The value of --updates-per-epoch: a number, "auto", or None for the default; raises `UserError` for others."""
    if value in (None, AUTO):
        return value
    with contextlib.suppress(ValueError):
        if (count := int(str(value))) > 0:
            return count
    raise UserError(f"--updates-per-epoch {value}: auto, or a whole number that is 1 or more, is needed")
