"""Files of numpy: without room on the disk."""

import errno
import os

import numpy as np
import pytest

from fairseq_xl.errors import UserError
from fairseq_xl.io.arrays import new_array


def test_an_array_without_room_is_one_sentence(tmp_path, monkeypatch):
    """Its room is reserved when it is made: the disk is not found to be full when a page of it is written back."""
    array = new_array(tmp_path / "some.npy", np.int64, (3, 2))
    array[1] = 7
    array.flush()
    assert np.load(tmp_path / "some.npy").tolist() == [[0, 0], [7, 7], [0, 0]]
    assert new_array(tmp_path / "empty.npy", np.int32, (0,)).shape == (0,)
    new_array(tmp_path / "large.npy", np.int64, (1 << 17,))
    assert (tmp_path / "large.npy").stat().st_blocks * 512 >= 1 << 20  # not sparse

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(UserError, match=r"other\.npy was not written: no room is left on its disk"):
        new_array(tmp_path / "other.npy", np.int64, (3,))
