"""Options: their fields in dataclasses, and their names on a command line."""

from dataclasses import field
from typing import Any


def option(default: Any, help_text: str, **metadata: Any) -> Any:
    """A field of a dataclass with its sentence in ``--help`` and further metadata, such as `range`."""
    return field(default=default, metadata={"help": help_text, **metadata})


def option_name(name: str) -> str:
    """The name of a field on a command line: --max-tokens for max_tokens."""
    return f"--{name.replace('_', '-')}"
