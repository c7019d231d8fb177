"""Options: their fields in dataclasses, and their names on a command line."""

from collections.abc import Iterable
from dataclasses import field
from typing import Any


def option(default: Any, help_text: str, **metadata: Any) -> Any:
    """A field of a dataclass with its sentence in ``--help`` and further metadata, such as `range`."""
    return field(default=default, metadata={"help": help_text, **metadata})


def option_name(name: str) -> str:
    """The name of a field on a command line: --max-tokens for max_tokens."""
    return f"--{name.replace('_', '-')}"


def changed(options: Any, dataclass: type) -> Iterable[str]:
    """The names of the options that are not at their default."""
    fields = dataclass.__dataclass_fields__  # type: ignore[attr-defined]
    for name, described in fields.items():
        default = described.default
        if not (isinstance(default, str) and default.startswith("${")) and getattr(options, name, default) != default:
            yield name
