"""Locks on files. Imports neither torch nor fairseq."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from fairseq_xl.errors import UserError


@contextmanager
def locked(path: str | os.PathLike[str], message: str | None) -> Iterator[None]:
    """Locks the file `path`, which is made and stays. The system releases the lock when the process ends.

    If another process has the lock, raises `UserError` with the message; without a message, waits for it. Raises it
    also if the file cannot be made.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    except OSError as error:
        raise UserError(f"{path}: cannot be made, which locks the folder: {error.strerror}") from error
    with open(descriptor, "a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if message is None else fcntl.LOCK_NB))
        except BlockingIOError as error:
            raise UserError(message) from error
        yield
