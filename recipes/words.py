"""Calls a recipe's function with the words of the command line."""

import inspect
import sys
from collections.abc import Callable
from typing import Any

from fairseq_xl import error_reporting

Function = Callable[..., Any]


def call(function: Function | dict[str, Function], usage: str | None) -> None:
    """Calls `function`, or the one that the first word names, with the words of the command line.

    Ends with status 2 and the lines ``python -m …`` of `usage`, the module's docstring, if the words do not fit.
    """
    error_reporting.install()
    words = sys.argv[1:]
    if isinstance(function, dict):
        chosen, words = function.get(words[0]) if words else None, words[1:]
    else:
        chosen = function
    try:
        inspect.signature(chosen).bind(*words)  # type: ignore[arg-type]
    except TypeError:
        lines = [line.strip() for line in str(usage).splitlines() if line.strip().startswith("python -m")]
        sys.stderr.write("usage: " + "\n       ".join(lines) + "\n")
        sys.exit(2)
    assert chosen is not None, "None has no signature"
    chosen(*words)
