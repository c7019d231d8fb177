"""Tables that are computed from a text once, and kept in files beside it, which all processes map."""

import hashlib
import logging
import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fairseq_xl.data.indexed import mapped_bytes
from fairseq_xl.data.manifest import stored_fingerprint
from fairseq_xl.errors import UserError
from fairseq_xl.io.files import replacing
from fairseq_xl.io.fingerprints import sampled
from fairseq_xl.io.locks import locked

logger = logging.getLogger(__name__)

IN_MEMORY_LINES = 1 << 20  # lines of a text up to which its tables are kept in memory, in each process
FORMAT = b"fairseq_xl 1"
START = 64  # bytes before the rows: FORMAT, the digest of text and version, and the size of the file

Blocks = Callable[[], Iterable[np.ndarray]]


def table(
    path: str,
    prefixes: Iterable[str],
    lines: int,
    blocks: Blocks,
    columns: int | None,
    version: int = 1,
) -> np.ndarray:
    """The rows that `blocks` yields, (n, columns) int64 or (n,) uint64, in the latter case sorted.

    The rows of a long text are in the file `path`. If it is missing, of another text or of another version, one process
    writes it while others wait. If it cannot be written, each process writes a temporary file. Writing takes the memory
    of a block; sorting is done in the mapped file.

    Args:
        path: of the file.
        prefixes: of the binarized texts that the rows are computed from.
        lines: number of lines of the text.
        blocks: yields blocks of rows, (b, columns) or (b,), at least one, perhaps empty.
        columns: number of columns; None: 1-D, sorted uint64.
        version: version of the algorithm of `blocks`; increase it when the same text gives other rows, so that existing
            files are computed again.
    """
    if lines <= IN_MEMORY_LINES:
        rows = np.concatenate(list(blocks()))
        if columns is None:
            rows.sort()
        return rows
    known = _known(prefixes, version)
    if _is_of(path, known):
        return _mapped(path, columns)
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(Path(path).with_name(".tables.lock"), None))
        except (UserError, OSError):
            logger.warning("%s cannot be written: each process computes a temporary copy", path)
            file = stack.enter_context(tempfile.NamedTemporaryFile())
            _write(file, known, blocks, columns)
            return _mapped(file.name, columns)
        if not _is_of(path, known):
            logger.info("computing %s from the text (once)", path)
            with replacing(path) as file:
                _write(file, known, blocks, columns)
    return _mapped(path, columns)


def _known(prefixes: Iterable[str], version: int) -> bytes:
    """`FORMAT` and a digest of a version and of texts: samples and size of each file, and what else tells its content.

    That are the hashes of all blocks in the manifest of the data folder, so that copies of the folder keep their
    tables, or the time of change of a file that the manifest does not describe.
    """
    digest = hashlib.blake2b(f"{version}".encode(), digest_size=32)
    for path in (Path(f"{prefix}.{end}") for prefix in prefixes for end in ("idx", "bin")):
        state, samples = path.stat(), sampled(path)
        known = stored_fingerprint(path.parent.parent, f"{path.parent.name}/{path.name}") or {}
        described = "blocks" in known and (known.get("bytes"), known.get("sampled")) == (state.st_size, samples)
        content = " ".join(map(str, known["blocks"])) if described else state.st_mtime_ns
        digest.update(f" {samples} {state.st_size} {content}".encode())
    return FORMAT + digest.digest()


def _start(known: bytes, size: int) -> bytes:
    return known.ljust(START - 8) + size.to_bytes(8, "little")


def _is_of(path: str, known: bytes) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(START) == _start(known, Path(path).stat().st_size)
    except OSError:
        return False


def _write(file: BinaryIO | Any, known: bytes, blocks: Blocks, columns: int | None) -> None:
    """Writes the rows, and sorts numbers in the mapped file, so that the system can move them out of memory."""
    file.seek(START)
    for block in blocks():
        file.write(np.ascontiguousarray(block).data)
    size = file.tell()
    file.seek(0)
    file.write(_start(known, size))
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
