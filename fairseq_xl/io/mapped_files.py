"""Memory-mapped files: their bytes, and tables that are computed once and kept in a file, which all processes map."""

import logging
import mmap
import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fairseq_xl.errors import UserError
from fairseq_xl.io.files import replacing
from fairseq_xl.io.locks import locked

logger = logging.getLogger(__name__)

READ_AHEAD = 1 << 20  # files up to this size (bytes) may be read ahead
START = 64  # bytes before the rows of a table: the digest of its source, and the size of the file

Blocks = Callable[[], Iterable[np.ndarray]]


def mapped_bytes(path: str | Path) -> mmap.mmap:
    """Maps the bytes of a file; one of more than `READ_AHEAD` bytes, which may not fit in memory, is not read ahead."""
    with open(path, "rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if len(content) > READ_AHEAD and hasattr(mmap, "MADV_RANDOM"):
        content.madvise(mmap.MADV_RANDOM)
    return content


def kept_table(path: str, digest: bytes, blocks: Blocks, columns: int | None) -> np.ndarray:
    """Maps the file `path` with the rows of `blocks`: (n, columns) int64, or sorted (n,) uint64.

    If it is missing or was computed from something else, one process writes it while others wait. If it cannot be
    written, each process writes a temporary file. Writing takes the memory of a block; sorting is done in the mapped
    file.

    Args:
        digest: digest of the source of the rows, up to 56 bytes.
        columns: number of columns; None: 1-D, sorted uint64.
    """
    if _is_of(path, digest):
        return _mapped(path, columns)
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(Path(path).with_name(".tables.lock"), None))
        except (UserError, OSError):
            logger.warning("%s cannot be written: each process computes a temporary copy", path)
            temporary = stack.enter_context(tempfile.NamedTemporaryFile())
            _write(temporary, digest, blocks, columns)
            return _mapped(temporary.name, columns)
        if not _is_of(path, digest):
            logger.info("computing %s from the text (once)", path)
            with replacing(path) as file:
                _write(file, digest, blocks, columns)
    return _mapped(path, columns)


def _start(digest: bytes, size: int) -> bytes:
    return digest.ljust(START - 8) + size.to_bytes(8, "little")


def _is_of(path: str, digest: bytes) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(START) == _start(digest, Path(path).stat().st_size)
    except OSError:
        return False


def _write(file: BinaryIO | Any, digest: bytes, blocks: Blocks, columns: int | None) -> None:
    """Writes the rows, and sorts numbers in the mapped file, so that the system can move them out of memory."""
    file.seek(START)
    for block in blocks():
        file.write(np.ascontiguousarray(block).data)
    size = file.tell()
    file.seek(0)
    file.write(_start(digest, size))
    file.flush()
    if columns is None and size > START:
        rows = np.memmap(file.name, np.uint64, "r+", START)
        rows.sort()
        rows.flush()


def _mapped(path: str, columns: int | None) -> np.ndarray:
    """The rows in a file."""
    kind = np.uint64 if columns is None else np.int64
    rows = np.frombuffer(mapped_bytes(path), kind, offset=START)
    return rows if columns is None else rows.reshape(-1, columns)
