"""An approximate index whose vectors are on disk: m vectors, C channels.

The index has cells (FAISS's IVF), which k-means finds. A vector is in the cell of the nearest centroid, and a search
compares a query with the vectors of some cells only. Memory holds the centroids, `PART_BYTES` of vectors while the
index is built, and at most `MAX_SAMPLED` vectors while the cells are learned. The vectors and their ids are in a
memory-mapped file, of which the OS caches as much as fits.
"""

import contextlib
import errno
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_xl.data.corpora.sampling import permutation
from fairseq_xl.errors import UserError
from fairseq_xl.io.files import NO_ROOM, replacing, room_problem
from fairseq_xl.io.temporary_arrays import GrowingArray, slices
from fairseq_xl.mining.nearest_neighbors import Vectors, import_faiss, normalize

PER_CELL = 64  # training vectors of a cell
MAX_SAMPLED = 1 << 20  # maximum number of training vectors of all cells: 2 GiB at 512 channels
PART_BYTES = 1 << 29  # bytes of the vectors of a part, which is built in memory
VECTOR_BLOCK = 8192  # vectors between two log lines, or searched at a time
PROBES = 32  # cells that a search visits first

#: program that merges indices: files of the empty index, of the vectors, of the merged index, and of its parts
MERGE = """
import sys
import faiss
from faiss.contrib.ondisk import merge_ondisk
empty, vectors, merged, *parts = sys.argv[1:]
index = faiss.read_index(empty)
merge_ondisk(index, parts, vectors)
with open(merged, "wb") as file:
    faiss.write_index(index, faiss.PyCallbackIOWriter(file.write))
"""

logger = logging.getLogger(__name__)


def cell_count(count: int) -> int:
    """The number of cells of an index of `count` vectors, about 4 times its square root."""
    return max(1, min(int(4 * count**0.5), count // PER_CELL, MAX_SAMPLED // PER_CELL))


def disk_index(folder: Path, rows: Callable[[np.ndarray], np.ndarray], count: int, channels: int, chunk: int) -> Any:
    """Builds an index for inner products in a folder, or opens a complete one.

    A stopped build continues; the caller must remove the index of other vectors. `rows` returns the vectors (b, C)
    float32 of ids (b,), of `chunk` ids at most. The folder takes about 4 m C bytes, and twice as many while parts are
    merged. Raises `UserError` for a full disk.
    """
    path, faiss = folder / "index", import_faiss()
    if path.exists():
        with contextlib.suppress(RuntimeError):  # of an index that was moved: it stores the path of its vectors
            return faiss.read_index(str(path))
    folder.mkdir(parents=True, exist_ok=True)
    _merge(folder, _parts(folder, rows, count, channels, chunk), path)
    return faiss.read_index(str(path))


def nearest_approximately(source: Vectors, target: Vectors, count: int, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """`nearest_neighbors.nearest` with an index in a folder, approximate: cosines and indices (n, k), memory-mapped."""
    channels, count = target[:1].shape[1], min(count, len(target))
    index = disk_index(folder, lambda rows: normalize(target[rows]), len(target), channels, VECTOR_BLOCK)
    cosines, indices = GrowingArray(folder, np.float32, count), GrowingArray(folder, np.int64, count)
    for rows in slices(len(source), VECTOR_BLOCK):
        values, block_indices = search(index, normalize(source[rows]), count)
        cosines.append(values)
        indices.append(block_indices)
    return cosines.finish(), indices.finish()


def search_parameters(index: Any, probes: int, selector: Any = None) -> Any:
    """Parameters of a search in `probes` cells of an index; an index without cells needs none."""
    faiss = import_faiss()
    if hasattr(index, "nlist"):
        return faiss.SearchParametersIVF(sel=selector, nprobe=min(probes, index.nlist))
    return faiss.SearchParameters(sel=selector)


def search(index: Any, queries: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Best inner products (b, k) and ids (b, k) for queries (b, C); visits cells until it has `count` vectors."""
    values, indices = index.search(queries, count, params=search_parameters(index, PROBES))
    probes = PROBES
    while probes < index.nlist and len(rows := np.flatnonzero(indices[:, -1] < 0)):
        probes *= 4
        values[rows], indices[rows] = index.search(queries[rows], count, params=search_parameters(index, probes))
    return values, indices


def _parts(folder: Path, rows: Callable[[np.ndarray], np.ndarray], count: int, channels: int, chunk: int) -> list[Path]:
    """Writes the empty index with its cells, and indices of `PART_BYTES` of vectors each; returns the files."""
    faiss = import_faiss()
    empty = folder / "empty"
    if not empty.exists():
        cells = cell_count(count)
        index = faiss.IndexIVFFlat(faiss.IndexFlatIP(channels), channels, cells, faiss.METRIC_INNER_PRODUCT)
        sample = np.sort(permutation(np.random.default_rng(count), count)(np.arange(min(count, cells * PER_CELL))))
        vectors = np.empty((len(sample), channels), np.float32)
        for first in range(0, len(sample), chunk):
            vectors[first : first + chunk] = rows(sample[first : first + chunk])
        index.train(vectors)
        _write(index, empty)
    size = max(1, PART_BYTES // (4 * channels * chunk)) * chunk  # vectors of a part
    parts = [folder / f"part-{start:012}" for start in range(0, count, size)]
    for start, part in zip(range(0, count, size), parts):
        if not part.exists():
            index = faiss.read_index(str(empty))
            for first in range(start, min(start + size, count), chunk):
                indices = np.arange(first, min(first + chunk, start + size, count))
                index.add_with_ids(rows(indices), indices)
                logger.info("index: %d of %d vectors", indices[-1] + 1, count)
            _write(index, part)
    return parts


def _merge(folder: Path, parts: list[Path], path: Path) -> None:
    """Merges the parts to the index and removes them; in another process, since FAISS prints to standard output."""
    lists, merged = folder / "vectors", Path(f"{path}.tmp")
    lists.unlink(missing_ok=True)
    names = [str(name.resolve()) for name in (folder / "empty", lists, merged, *parts)]
    result = subprocess.run([sys.executable, "-c", MERGE, *names], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if result.returncode:
        output = result.stderr.decode(errors="replace")
        codes = {code for code in NO_ROOM if os.strerror(code) in output}
        if result.returncode == -signal.SIGBUS:  # the disk is full at a write to a mapped file
            codes = {errno.ENOSPC}
        if codes:
            raise UserError(f"{lists} was not written: {room_problem(OSError(min(codes), ''))}")
        raise RuntimeError(f"{folder}: FAISS cannot merge the index:\n{output}")
    os.replace(merged, path)
    for part in (*parts, folder / "empty"):
        part.unlink()


def _write(index: Any, path: Path) -> None:
    """Writes an index, whole or not at all; raises errors that FAISS ignores."""
    faiss = import_faiss()
    with replacing(path) as file:
        faiss.write_index(index, faiss.PyCallbackIOWriter(file.write))
