"""Arrays and strings that grow in files without names, or in memory."""

import numpy as np
import pytest

from fairseq_xl.errors import UserError
from fairseq_xl.io import temporary_arrays
from fairseq_xl.io.temporary_arrays import GrowingArray, GrowingStrings, LazySequence, full, records, slices

STRINGS = ["", "a", "Straße\u2028", "\t", "", "東京", "x" * 50]


@pytest.fixture(params=["disk", "memory"])
def folder(request, tmp_path):
    return tmp_path if request.param == "disk" else None


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(temporary_arrays, "BLOCK", 3)


def full_file(dir):
    return open("/dev/full", "wb")


def is_mapped(array):
    while array is not None and not isinstance(array, np.memmap):
        array = array.base
    return array is not None


def test_slices():
    assert [*slices(7)] == [slice(0, 3), slice(3, 6), slice(6, 7)]
    assert [*slices(4, 4)] == [slice(0, 4)] and [*slices(0)] == []


@pytest.mark.parametrize("row", [(), (2,)])
@pytest.mark.parametrize("sizes", [[], [0], [3, 0, 1], [2000, 5]])
def test_rows(folder, tmp_path, row, sizes):
    array, blocks = GrowingArray(folder, np.int32, *row), [np.ones((size, *row)) * size for size in sizes]
    for block in blocks:
        array.append(block)
    found = array.finish()
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, np.concatenate([np.empty((0, *row)), *blocks]))
    assert is_mapped(found) == (folder is not None and sum(sizes) > 0)
    assert list(tmp_path.iterdir()) == []


def test_an_array_of_one_value_can_be_written_to(folder):
    found = full(folder, bool, 0, 8)
    found[[2, 7]] = True
    assert found.tolist() == [number in (2, 7) for number in range(8)] and is_mapped(found) == (folder is not None)
    rows = full(folder, np.int32, -1, 7, 2)
    rows[5] = 3
    assert rows.dtype == np.int32 and rows.tolist() == [[-1, -1]] * 5 + [[3, 3], [-1, -1]]


def test_records_of_tuples(folder):
    kind = np.dtype([("score", "<f4"), ("number", "<i8")])
    rows = [(number / 2, 2**60 + number) for number in range(7)]
    assert records(iter(rows), folder, kind).tolist() == rows
    assert records([], folder, kind).tolist() == []


def test_strings(folder):
    growing = GrowingStrings(folder)
    for block in (STRINGS[:1], [], STRINGS[1:6], STRINGS[6:]):
        growing.extend(block)
    found = growing.finish()
    assert list(found) == [found[number] for number in range(7)] == STRINGS and len(found) == 7
    assert found[1:4] == STRINGS[1:4] and found[5:100] == STRINGS[5:] and found[4:2] == found[9:] == []
    assert found[-1] == STRINGS[-1]
    with pytest.raises(IndexError):
        found[7]
    assert isinstance(found, list) == (folder is None)
    assert not GrowingStrings(folder).finish()


def test_iteration_reads_blocks():
    reads = []

    def read(first, end):
        reads.append((first, end))
        return list(range(first, end))

    stored = LazySequence(7, read)
    assert list(stored) == list(range(7)) and reads == [(0, 3), (3, 6), (6, 7)]
    with pytest.raises(ValueError, match="without a step, found the step 2"):
        stored[::2]


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_a_full_disk(tmp_path, monkeypatch, size):
    """A small block waits in a buffer until the end."""
    monkeypatch.setattr(temporary_arrays.tempfile, "TemporaryFile", full_file)
    array = GrowingArray(tmp_path, np.uint8)
    with pytest.raises(UserError, match=f"^{tmp_path}: no room is left on its disk$"):
        array.append(np.ones(size))
        array.finish()
