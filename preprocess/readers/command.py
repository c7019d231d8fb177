"""What the readers' commands have in common: a log, and one sentence instead of a traceback."""

import errno
import logging
import signal
import sys
from collections.abc import Callable

from tqdm.contrib.logging import logging_redirect_tqdm

from preprocess.config import PreprocessError


def run(name: str, work: Callable[[], None]) -> int:
    """Do `work`; the exit status, 1 after a problem that is told on stderr in a sentence."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        with logging_redirect_tqdm():
            work()
    except PreprocessError as error:
        sys.stderr.write(f"{name}: {error}\n")
        return 1
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        sys.stderr.write(
            f"{name}: the disk is full: make room, and run the same command to continue\n"
            if full
            else f"{name}: {error.filename or ''}: {error.strerror or error}\n"
        )
        return 1
    except KeyboardInterrupt:
        sys.stderr.write(f"{name}: interrupted, run the same command to continue\n")
        return 130
    return 0


def end_on_sigterm() -> None:
    """Leave by an exception, so that what is half written is removed."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
