"""Matrices of any number of rows in .npy files."""

import numpy as np
import pytest

from fairseq_xl.errors import UserError
from fairseq_xl.io.arrays import check_finite_rows, growing_matrix, open_matrix


@pytest.mark.parametrize("sizes", [[], [3], [1, 0, 4], [9] * 30])
def test_numpy_reads_the_same_rows(tmp_path, sizes):
    rng, path = np.random.default_rng(1), str(tmp_path / "rows.npy")
    blocks = [rng.normal(size=(size, 5)).astype(np.float32) for size in sizes]
    with growing_matrix(path, 5) as append:
        for block in blocks:
            append(block)
    expected = np.concatenate([np.empty((0, 5), np.float32), *blocks])
    found = np.load(path, allow_pickle=False)
    assert found.dtype == np.float32 and np.array_equal(found, expected)
    np.save(tmp_path / "numpy.npy", expected)
    assert (tmp_path / "numpy.npy").read_bytes() == (tmp_path / "rows.npy").read_bytes()
    if sizes:
        assert isinstance(open_matrix(path), np.memmap) and np.array_equal(open_matrix(path), expected)


def test_a_failure_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "rows.npy"
    path.write_bytes(b"before")
    with pytest.raises(RuntimeError), growing_matrix(str(path), 2) as append:
        append(np.ones((3, 2)))
        raise RuntimeError
    assert path.read_bytes() == b"before" and [each.name for each in tmp_path.iterdir()] == ["rows.npy"]


def test_what_is_refused(tmp_path):
    path = tmp_path / "x.npy"
    with pytest.raises(UserError, match="x.npy: no such file"):
        open_matrix(str(path))
    np.save(path, np.ones((4, 3), np.float32))
    whole = path.read_bytes()
    for content in (b"", b"text", whole[:100], whole[:-1]):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"x.npy is not an .npy file of numbers, or it is damaged or cut short"):
            open_matrix(str(path))
    for array, shown in (
        (np.ones(3), r"float64 \(3,\)"),
        (np.ones((2, 2), int), r"int64 \(2, 2\)"),
        (np.ones((2, 0)), r"float64 \(2, 0\)"),
    ):
        np.save(path, array)
        with pytest.raises(UserError, match=f"a row for each sentence, found {shown}"):
            open_matrix(str(path))
    path.write_bytes(whole + b"x")
    with pytest.raises(UserError, match=f"x.npy is damaged: expected {len(whole)} bytes, .* found {len(whole) + 1}"):
        open_matrix(str(path))
    np.save(path, np.array([{"run": "me"}]), allow_pickle=True)
    with pytest.raises(UserError, match="is not an .npy file of numbers"):
        open_matrix(str(path))
    np.savez(tmp_path / "archive.npz", np.ones((2, 2)))
    with pytest.raises(UserError, match="found an archive"):
        open_matrix(str(tmp_path / "archive.npz"))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e39])
@pytest.mark.parametrize("checked", [1, 7, 1 << 22])
def test_numbers_that_are_not_finite(tmp_path, monkeypatch, value, checked):
    monkeypatch.setattr("fairseq_xl.io.arrays.CHECKED", checked)
    matrix = np.full((6, 3), 3e38)
    check_finite_rows("x.npy", matrix)
    matrix[4, 2] = value
    with pytest.raises(UserError, match=r"x.npy, row 5: expected finite numbers, found (nan|-?inf|1e\+39)"):
        check_finite_rows("x.npy", matrix)
