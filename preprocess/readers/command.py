"""Runs the commands of readers with a log, and with errors in one sentence without a traceback."""

import logging
import sys
from collections.abc import Callable

from tqdm.contrib.logging import logging_redirect_tqdm

from fairseq_xl.errors import UserError
from fairseq_xl.io.files import room_problem
from fairseq_xl.io.signals import ending_by_exception
from fairseq_xl.io.text import use_utf8


def run(name: str, work: Callable[[], None]) -> int:
    """Runs `work`; returns the exit status, 1 after an error, which is shown in one sentence on stderr."""
    use_utf8()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        with ending_by_exception(), logging_redirect_tqdm():
            work()
    except (UserError, OSError) as error:
        if room_problem(error):
            message = "the disk is full: make room, and run the same command to continue"
        elif isinstance(error, OSError):
            message = f"{error.filename or ''}: {error.strerror or error}"
        else:
            message = str(error)
        sys.stderr.write(f"{name}: {message}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write(f"{name}: interrupted, run the same command to continue\n")
        return 130
    return 0
