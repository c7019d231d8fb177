"""Tables that are computed from a text once, and kept in files beside it, which all processes map."""

import hashlib
import logging
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from fairseq_xl.data.store.binarized_text import Text
from fairseq_xl.data.store.manifest import stored_fingerprint
from fairseq_xl.errors import UserError
from fairseq_xl.io.arrays import mapped
from fairseq_xl.io.files import replacing
from fairseq_xl.io.fingerprints import UNKNOWN, binarized_fingerprint
from fairseq_xl.io.folders import locked
from fairseq_xl.io.temporary_arrays import GrowingArray

logger = logging.getLogger(__name__)

Blocks = Callable[[], Iterable[np.ndarray]]

IN_MEMORY_LINES = 1 << 20  # lines of a text up to which its tables are kept in memory, in each process
FORMAT = b"fairseq_xl 1"
HEADER_BYTES = 64  # `_version_bytes`, and the size of the file


def table(path: str, texts: Sequence[Text], blocks: Blocks, columns: int | None, version: int = 1) -> np.ndarray:
    """The rows that `blocks` yields, (n, columns) int64 or (n,) uint64, in the latter case sorted.

    Those of a long text are mapped from the file `path`. If it is missing or of another text or version, one process
    writes it while others wait; if it cannot be written, each process writes a temporary file. Writing takes the memory
    of a block; rows are sorted in a mapped file.

    Args:
        texts: the aligned texts that the rows are computed from.
        blocks: yields blocks of rows, (b, columns) or (b,).
        columns: number of columns; None: 1-D, sorted uint64.
        version: of `blocks`; increase it when the same text gives other rows, so that files are computed again.
    """
    if len(texts[0]) <= IN_MEMORY_LINES:
        return _computed(None, blocks, columns)
    version_bytes = _version_bytes(texts, version).ljust(HEADER_BYTES - 8)
    if not _is_of(path, version_bytes):
        with ExitStack() as stack:
            try:
                Path(path).parent.mkdir(exist_ok=True)  # of a folder of plain fairseq-preprocess
                stack.enter_context(locked(Path(path).with_name(".tables.lock"), None))
            except (UserError, OSError):
                logger.warning("%s cannot be written: each process computes a temporary copy", path)
                return _computed(Path(tempfile.gettempdir()), blocks, columns)
            if not _is_of(path, version_bytes):
                logger.info("computing %s from the text (once)", path)
                with replacing(path) as file:
                    rows = _computed(Path(path).parent, blocks, columns)
                    file.write(version_bytes + (HEADER_BYTES + rows.nbytes).to_bytes(8, "little"))
                    file.write(rows.data)
    if columns is None:
        return mapped(path, np.uint64, HEADER_BYTES)
    return mapped(path, np.int64, HEADER_BYTES).reshape(-1, columns)


def _computed(folder: Path | None, blocks: Blocks, columns: int | None) -> np.ndarray:
    """The rows of `table`, in a temporary file of a folder or in memory."""
    array = GrowingArray(folder, np.uint64) if columns is None else GrowingArray(folder, np.int64, columns)
    for block in blocks():
        array.append(block)
    rows = array.finish(writable=columns is None)
    if columns is None:
        rows.sort()
    return rows


def _is_of(path: str, version_bytes: bytes) -> bool:
    """Whether the file has this version of the rows, and all of them."""
    try:
        with open(path, "rb") as file:
            return file.read(HEADER_BYTES) == version_bytes + Path(path).stat().st_size.to_bytes(8, "little")
    except OSError:
        return False


def _version_bytes(texts: Sequence[Text], version: int) -> bytes:
    """`FORMAT` and a digest of a version and of the fingerprints of texts.

    Copies of a data folder keep their tables. The time of change stands for content whose hash no manifest has.
    """
    digest = hashlib.blake2b(f"{version}".encode(), digest_size=32)
    for path in (Path(f"{text.prefix}.{end}") for text in texts for end in ("idx", "bin")):
        entry = stored_fingerprint(path.parent.parent, f"{path.parent.name}/{path.name}")
        file, recorded = (binarized_fingerprint(path, stored).split() for stored in (None, entry))
        content = recorded[2] if recorded[:2] == file[:2] else UNKNOWN
        digest.update(f" {file[:2]} {path.stat().st_mtime_ns if content == UNKNOWN else content}".encode())
    return FORMAT + digest.digest()
