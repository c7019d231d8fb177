"""Tables that are computed from a text once, and kept in files beside it, which all processes map."""

import hashlib
import logging
import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fairseq_xl.data.manifest import sampled
from fairseq_xl.errors import UserError
from fairseq_xl.io.files import replacing
from fairseq_xl.io.locks import locked

logger = logging.getLogger(__name__)

FEW = 1 << 20  # lines of a text up to which its tables are kept in memory, in each process
FORMAT = b"fairseq_xl 1"
START = 64  # bytes before the rows: FORMAT and the digest of the text

Blocks = Callable[[], Iterable[np.ndarray]]


def table(path: str, prefixes: Iterable[str], lines: int, blocks: Blocks, sort: bool = False) -> np.ndarray:
    """The rows that `blocks` yields, (n, c) or (n,) of a number of 8 bytes; in a long text from the file `path`.

    The file is written if it is missing or of another text, by one process while others wait. Where no file can be
    written, it is a temporary one of each process. The memory that it takes is that of a block.

    Args:
        path: of the file.
        prefixes: of the binarized texts that the rows are computed from.
        lines: number of lines of the text.
        blocks: yields rows, blocks (b, c) or (b,), of which there is at least one, perhaps empty.
        sort: whether to sort the rows, which are numbers.
    """
    if lines <= FEW:
        rows = np.concatenate(list(blocks()))
        if sort:
            rows.sort()
        return rows
    files = [f"{prefix}.{end}" for prefix in prefixes for end in ("idx", "bin")]
    known = FORMAT + hashlib.blake2b("".join(sampled(Path(file)) for file in files).encode(), digest_size=32).digest()
    example = next(iter(blocks()))
    if _is_of(path, known):
        return _mapped(path, example)
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(Path(path).with_name(".tables.lock"), None))
        except (UserError, OSError):
            logger.warning("%s cannot be written there, so each process computes it for itself", path)
            file = stack.enter_context(tempfile.NamedTemporaryFile())
            _write(file, known, blocks, example, sort)
            return _mapped(file.name, example)
        if not _is_of(path, known):
            logger.info("%s is computed from the text, once", path)
            with replacing(path) as file:
                _write(file, known, blocks, example, sort)
    return _mapped(path, example)


def _is_of(path: str, known: bytes) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(START) == known.ljust(START)
    except OSError:
        return False


def _write(file: BinaryIO | Any, known: bytes, blocks: Blocks, example: np.ndarray, sort: bool) -> None:
    """Writes the rows, and sorts them in the mapped file, so that the system can move them out of memory."""
    file.write(known.ljust(START))
    for block in blocks():
        file.write(np.ascontiguousarray(block).data)
    file.flush()
    if sort and len(_mapped(file.name, example)):
        rows = np.memmap(file.name, example.dtype, "r+", START)
        rows.sort()
        rows.flush()


def _mapped(path: str, example: np.ndarray) -> np.ndarray:
    """The rows in a file, shaped as an `example` of them."""
    if Path(path).stat().st_size == START:
        return example[:0]
    return np.asarray(np.memmap(path, example.dtype, "r", START)).reshape(-1, *example.shape[1:])
