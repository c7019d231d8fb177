"""Files of numpy: reading .npz files as plain data, and making mapped .npy files."""

import math
import os
import zipfile
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from fairseq_xl.errors import UserError
from fairseq_xl.io.files import is_whole_file, room_problem

_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def read_arrays(path: str | Path) -> dict[str, np.ndarray] | None:
    """The arrays, by name, of an .npz file of numpy.savez; None if the file is missing or damaged.

    No code in the file is run, and no more memory is allocated than the file has bytes. Raises `UserError` without
    permission to read it.
    """
    try:
        with open(path, "rb") as stream:
            with zipfile.ZipFile(stream) as parts:
                size = sum(part.file_size for part in parts.infolist())
                if parts.testzip() or size > os.fstat(stream.fileno()).st_size or not is_whole_file(parts):
                    return None
                for part in parts.infolist():  # numpy allocates the size in a header, be it 23 TiB, before it reads
                    with parts.open(part) as array:
                        shape, _, kind = _HEADERS[npy.read_magic(array)](array)
                        if part.file_size != array.tell() + math.prod(shape) * kind.itemsize:
                            return None
            stream.seek(0)
            return dict(np.load(stream, allow_pickle=False))
    except PermissionError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except MemoryError:
        raise
    except Exception:  # a damaged file ends in nearly any exception, NotImplementedError and KeyError included
        return None


def new_array(path: Path, dtype: type, shape: tuple[int, ...]) -> np.ndarray:
    """Makes a .npy file of zeros, and maps it for reading and writing.

    Its room on the disk is reserved at once: written to a full disk, a mapped file ends the process (SIGBUS).
    Raises `UserError` if there is no room.
    """
    try:
        array = np.lib.format.open_memmap(path, "w+", dtype, shape)
        if array.size and hasattr(os, "posix_fallocate"):
            with open(path, "r+b") as file:
                os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size)
    except OSError as error:  # numpy's does not name the file
        raise UserError(f"{path} was not written: {room_problem(error) or error.strerror}") from error
    return array
