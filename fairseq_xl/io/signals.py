"""Signals that end a command raise an exception, so that it removes incomplete files.

Ctrl-C (SIGINT) does so in every Python program; SIGTERM and SIGHUP would end the process at once. Imports neither torch
nor fairseq.
"""

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

ENDING = (signal.SIGTERM, signal.SIGHUP)  # of `kill` and job schedulers; of a terminal that is closed


@contextlib.contextmanager
def ending_by_exception() -> Iterator[None]:
    """Makes the signals `ENDING` raise `SystemExit` with status 128 + number in its block, as a shell reports them.

    A signal that is ignored, as SIGHUP by nohup, stays ignored; outside the main thread nothing changes.
    """
    previous = end_by_exception(tuple(signum for signum in ENDING if signal.getsignal(signum) != signal.SIG_IGN))
    try:
        yield
    except RuntimeError as error:
        if isinstance(error.__cause__, (KeyboardInterrupt, SystemExit)):  # of Python 3.11, while a class is defined
            raise error.__cause__ from None
        raise
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)


@contextlib.contextmanager
def stops_handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Context in which SIGTERM and SIGINT call a function; outside the main thread nothing changes."""
    signals = (signal.SIGTERM, signal.SIGINT) if threading.current_thread() is threading.main_thread() else ()
    previous = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, earlier in previous.items():
            signal.signal(number, earlier)


def end_by_exception(signals: tuple[signal.Signals, ...] | None = None) -> dict[signal.Signals, Any]:
    """Makes signals, by default those of `ENDING` that nobody handles, raise `SystemExit`; returns earlier handlers."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    if signals is None:
        signals = tuple(signum for signum in ENDING if signal.getsignal(signum) == signal.SIG_DFL)

    def end(number: int, _: object) -> None:
        for signum in signals:
            signal.signal(signum, signal.SIG_IGN)  # a second one would interrupt the removal of files
        sys.exit(128 + number)

    return {signum: signal.signal(signum, end) for signum in signals}
