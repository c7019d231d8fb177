"""Sorting of more records than fit into memory. Imports neither torch nor fairseq."""

import heapq
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from fairseq_xl.io.temporary_arrays import GrowingArray, slices

RUN = 1 << 20  # records that are sorted in memory at a time
MERGED = 1 << 17  # records of all runs together that are in memory while runs are merged


def in_order(blocks: Iterable[np.ndarray], dtype: DTypeLike, folder: Path | None) -> Iterator[tuple]:
    """The records of structured arrays as tuples, sorted by their first field, then by the next ones.

    With a `folder`, runs of at least `RUN` records are sorted in memory and written to a temporary file there;
    otherwise all records are one run in memory. Raises `OSError` for a full disk.

    Args:
        blocks: arrays (b,) of type `dtype`, whose fields are numbers other than NaN.
    """
    fields = np.dtype(dtype).names
    assert fields, "records have fields"
    found, ends = GrowingArray(folder, dtype), [0]
    for run in _runs(blocks, None if folder is None else RUN):
        found.append(run[np.lexsort([run[field] for field in reversed(fields)])])
        ends.append(ends[-1] + len(run))
    records = found.finish()
    size = max(1, MERGED // len(ends))
    return heapq.merge(*(_tuples(records[first:end], size) for first, end in itertools.pairwise(ends)))


def _runs(blocks: Iterable[np.ndarray], size: int | None) -> Iterator[np.ndarray]:
    """Blocks joined to arrays of at least `size` records, but for the last one; None: to one array."""
    waiting: list[np.ndarray] = []
    for block in blocks:
        waiting.append(block)
        if size is not None and sum(map(len, waiting)) >= size:
            yield np.concatenate(waiting)
            waiting = []
    if waiting:
        yield np.concatenate(waiting)


def _tuples(run: np.ndarray, size: int) -> Iterator[tuple]:
    for rows in slices(len(run), size):
        yield from run[rows].tolist()
