"""External merge sort of structured arrays. Imports neither torch nor fairseq."""

import heapq
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from fairseq_xl.io.temporary_arrays import GrowingArray, slices

RUN_RECORDS = 1 << 20  # least number of records of a sorted run
MERGE_RECORDS = 1 << 17  # records in memory while runs are merged


def sorted_records(blocks: Iterable[np.ndarray], dtype: DTypeLike, folder: Path | None) -> Iterator[tuple]:
    """Yields the records of structured arrays as tuples, sorted by their fields in order.

    With a `folder`, runs of at least `RUN_RECORDS` records are sorted in memory and written to a temporary file there;
    otherwise all records are sorted in memory. Raises `OSError` for a full disk.

    Args:
        blocks: arrays (b,) of type `dtype`, whose fields are numbers other than NaN.
    """
    if folder is None:
        return _tuples(_sorted(np.concatenate([np.empty(0, dtype), *blocks])), MERGE_RECORDS)
    runs, ends = GrowingArray(folder, dtype), [0]
    for run in _runs(blocks, RUN_RECORDS):
        runs.append(_sorted(run))
        ends.append(ends[-1] + len(run))
    records = runs.finish()
    size = max(1, MERGE_RECORDS // len(ends))
    return heapq.merge(*(_tuples(records[first:end], size) for first, end in itertools.pairwise(ends)))


def _sorted(run: np.ndarray) -> np.ndarray:
    """Records (n,), sorted by their fields in order."""
    fields = run.dtype.names
    assert fields, "records have fields"
    return run[np.lexsort([run[field] for field in reversed(fields)])]


def _runs(blocks: Iterable[np.ndarray], size: int) -> Iterator[np.ndarray]:
    """Joins blocks to arrays of at least `size` records; the last may have fewer."""
    waiting: list[np.ndarray] = []
    for block in blocks:
        waiting.append(block)
        if sum(map(len, waiting)) >= size:
            yield np.concatenate(waiting)
            waiting = []
    if waiting:
        yield np.concatenate(waiting)


def _tuples(run: np.ndarray, size: int) -> Iterator[tuple]:
    for rows in slices(len(run), size):
        yield from run[rows].tolist()
