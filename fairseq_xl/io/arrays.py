"""Arrays in files: maps raw ones and matrices (.npy), reads and writes .npz files as plain data.

Arrays of a running command are in temporary files (`fairseq_xl.io.temporary_arrays`). `n` rows, `C` columns.
"""

import contextlib
import functools
import math
import mmap
import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.lib import format as npy
from numpy.typing import DTypeLike

from fairseq_xl.errors import UserError
from fairseq_xl.io.files import is_whole_file, replacing

Append = Callable[[np.ndarray], object]

KINDS = {"floats": "f", "whole numbers": "iu"}  # numbers -> kinds of numpy
CHECKED = 1 << 22  # numbers that `check_finite_rows` reads at a time
READ_AHEAD = 1 << 20  # files up to this size (bytes) may be read ahead
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


class Reopened:
    """Base of classes that open files: pickled, they are the arguments that they were made with."""

    __opened: Callable[[], "Reopened"]

    def __new__(cls, *arguments: Any, **keywords: Any) -> "Reopened":
        instance = super().__new__(cls)
        instance.__opened = functools.partial(cls, *arguments, **keywords)
        return instance

    def __reduce__(self) -> tuple[Any, ...]:
        return self.__opened, ()


def mapped(path: str | Path, dtype: DTypeLike, offset: int = 0, count: int = -1) -> np.ndarray:
    """Maps `count` numbers of a file from a byte on, read-only: (n,); none is read ahead beyond `READ_AHEAD` bytes."""
    with open(path, "rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if len(content) > READ_AHEAD and hasattr(mmap, "MADV_RANDOM"):
        content.madvise(mmap.MADV_RANDOM)
    return np.frombuffer(content, dtype, count, offset)


def write_arrays(path: str | Path, **arrays: Any) -> None:
    """Writes arrays as an .npz file, whole or not at all; raises the errors of `replacing`."""
    with replacing(path) as file:
        np.savez(file, **arrays)


def read_arrays(path: str | Path) -> dict[str, np.ndarray] | None:
    """The arrays of an .npz file, by name, of no more bytes than the file; None if it is missing or damaged.

    Raises `UserError` without permission to read it.
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


@contextlib.contextmanager
def growing_matrix(path: str, columns: int) -> Iterator[Append]:
    """Writes a float32 matrix of any number of rows: yields a function that appends rows (n, C).

    The file is written whole or not at all, with the errors of `replacing`. numpy leaves room in the header for the
    number of rows, which is known at the end.
    """
    header = {"descr": npy.dtype_to_descr(np.dtype(np.float32)), "fortran_order": False, "shape": (0, columns)}
    with replacing(path) as file:
        npy.write_array_header_1_0(file, header)
        begin = file.tell()
        yield lambda block: file.write(np.ascontiguousarray(block, np.float32).tobytes())
        rows = (file.seek(0, os.SEEK_END) - begin) // (4 * columns)
        file.seek(0)
        npy.write_array_header_1_0(file, header | {"shape": (rows, columns)})
        assert file.tell() == begin, "the header has the same length for every number of rows"


def open_matrix(path: str, kind: Literal["floats", "whole numbers"] = "floats") -> Any:
    """Maps the matrix (n, C) of an .npy file; `UserError` for a damaged file, other content and surplus bytes."""
    try:
        matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or 'not an .npy file'}") from None
    except MemoryError:
        raise
    except Exception:  # a damaged header ends in nearly any exception
        raise UserError(f"{path} is not an .npy file of numbers, or it is damaged or cut short") from None
    is_matrix = isinstance(matrix, np.ndarray) and matrix.ndim == 2 and matrix.shape[1]
    if not is_matrix or matrix.dtype.kind not in KINDS[kind]:
        shown = f"{matrix.dtype} {matrix.shape}" if isinstance(matrix, np.ndarray) else "an archive"
        raise UserError(f"{path}: expected a matrix of {kind}, a row for each sentence, found {shown}")
    expected, size = matrix.offset + matrix.nbytes, os.stat(path).st_size
    if size != expected:
        raise UserError(f"{path} is damaged: expected {expected} bytes, as its header says, found {size}")
    return matrix


def check_finite_rows(path: str, matrix: Any) -> None:
    """Raises `UserError` if the matrix (n, C) of the file `path` has a number that is not finite in float32."""
    rows = max(1, CHECKED // matrix.shape[1])
    for first in range(0, len(matrix), rows):
        with np.errstate(over="ignore"):
            finite = np.isfinite(np.asarray(matrix[first : first + rows], np.float32))
        if not finite.all():
            row, column = np.argwhere(~finite)[0].tolist()
            value = matrix[first + row, column]
            raise UserError(f"{path}, row {first + row + 1}: expected finite numbers, found {value}")
