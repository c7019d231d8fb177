"""Locks on files. Imports neither torch nor fairseq."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from fairseq_xl.errors import UserError


@contextmanager
def locked(path: str | os.PathLike[str], message: str) -> Iterator[None]:
    """Locks the file `path`, which is made and stays. The system releases the lock when the process ends.

    Raises `UserError` with the message if another process has the lock.
    """
    with open(path, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(message) from error
        yield
