"""Records sorted in runs on the disk, against numpy's sort in memory."""

import numpy as np
import pytest

from fairseq_xl.io import temporary_arrays
from fairseq_xl.io.temporary_arrays import sorted_records

RECORD = np.dtype([("first", "<f4"), ("second", "<u8"), ("number", "<i8")])


def made(count, seed=1):
    """Records with many ties in the first and in both first fields; large integers that no float has."""
    rng = np.random.default_rng(seed)
    found = np.empty(count, RECORD)
    found["first"] = rng.integers(-2, 3, count) / 3
    found["second"] = rng.integers(0, 3, count).astype(np.uint64) + np.uint64(2**64 - 3)
    found["number"] = rng.integers(0, count, count)
    return found


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("run, merged", [(1, 1), (7, 5), (50, 1000), (1000, 3)])
@pytest.mark.parametrize("sizes", [[], [3, 0, 11, 1, 1, 30, 4]])
def test_the_order_is_that_of_numpy(tmp_path, monkeypatch, on_disk, run, merged, sizes):
    monkeypatch.setattr(temporary_arrays, "RUN_RECORDS", run)
    monkeypatch.setattr(temporary_arrays, "MERGE_RECORDS", merged)
    records = made(sum(sizes))
    blocks = (records[end - size : end] for size, end in zip(sizes, np.cumsum(sizes)))
    found = list(sorted_records(blocks, RECORD, tmp_path if on_disk else None))
    assert found == np.sort(records, order=RECORD.names).tolist()
    assert list(tmp_path.iterdir()) == []  # the file has no name


def test_runs_are_read_in_parts(tmp_path, monkeypatch):
    """Of 10 runs of 100 records, at most 20 records are in memory together while they are merged."""
    monkeypatch.setattr(temporary_arrays, "RUN_RECORDS", 100)
    monkeypatch.setattr(temporary_arrays, "MERGE_RECORDS", 22)
    parts = []
    read = temporary_arrays._tuples

    def tuples(run, size):
        parts.append((len(run), size))
        return read(run, size)

    monkeypatch.setattr(temporary_arrays, "_tuples", tuples)
    records = made(1000)
    found = list(sorted_records((records[first : first + 25] for first in range(0, 1000, 25)), RECORD, tmp_path))
    assert parts == [(100, 2)] * 10 and found == np.sort(records, order=RECORD.names).tolist()
