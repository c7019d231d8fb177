"""Tables that are computed from a text once, and kept in files beside it, which all processes map."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from fairseq_xl.data.store.manifest import stored_fingerprint
from fairseq_xl.io.fingerprints import UNKNOWN, binarized_fingerprint
from fairseq_xl.io.mapped_files import Blocks, kept_table

IN_MEMORY_LINES = 1 << 20  # lines of a text up to which its tables are kept in memory, in each process
FORMAT = b"fairseq_xl 1"


def table(
    path: str, prefixes: Iterable[str], lines: int, blocks: Blocks, columns: int | None, version: int = 1
) -> np.ndarray:
    """The rows that `blocks` yields, (n, columns) int64 or (n,) uint64, in the latter case sorted.

    Those of a long text are in the file `path`, written if it is missing or of another text or version (`kept_table`).

    Args:
        prefixes: of the binarized texts that the rows are computed from.
        lines: number of lines of the text.
        blocks: yields blocks of rows, (b, columns) or (b,), at least one, perhaps empty.
        columns: number of columns; None: 1-D, sorted uint64.
        version: of `blocks`; increase it when the same text gives other rows, so that files are computed again.
    """
    if lines > IN_MEMORY_LINES:
        return kept_table(path, _version_bytes(prefixes, version), blocks, columns)
    rows = np.concatenate(list(blocks()))
    if columns is None:
        rows.sort()
    return rows


def _version_bytes(prefixes: Iterable[str], version: int) -> bytes:
    """`FORMAT` and a digest of a version and of the fingerprints of texts.

    Copies of a data folder keep their tables. The time of change stands for content whose hash no manifest has.
    """
    digest = hashlib.blake2b(f"{version}".encode(), digest_size=32)
    for path in (Path(f"{prefix}.{end}") for prefix in prefixes for end in ("idx", "bin")):
        entry = stored_fingerprint(path.parent.parent, f"{path.parent.name}/{path.name}")
        file, recorded = (binarized_fingerprint(path, stored).split() for stored in (None, entry))
        content = recorded[2] if recorded[:2] == file[:2] else UNKNOWN
        digest.update(f" {file[:2]} {path.stat().st_mtime_ns if content == UNKNOWN else content}".encode())
    return FORMAT + digest.digest()
