"""Runs a recipe's function with the arguments of the command line."""

import inspect
import sys
from collections.abc import Callable
from typing import Any

from fairseq_xl.io import error_reporting

Function = Callable[..., Any]


def call(function: Function | dict[str, Function], usage: str | None) -> None:
    """Calls `function`, or that with the name of the first argument, with the arguments of the command line.

    Arguments that do not fit its signature end the program with status 2 and the lines ``python -m …`` of `usage`, the
    module's docstring.
    """
    error_reporting.install()
    arguments = sys.argv[1:]
    if isinstance(function, dict):
        called, arguments = function.get(arguments[0]) if arguments else None, arguments[1:]
    else:
        called = function
    try:
        inspect.signature(called).bind(*arguments)  # type: ignore[arg-type]
    except TypeError:
        lines = [line.strip() for line in str(usage).splitlines() if line.strip().startswith("python -m")]
        sys.stderr.write("usage: " + "\n       ".join(lines) + "\n")
        sys.exit(2)
    assert called is not None, "None has no signature"
    called(*arguments)
