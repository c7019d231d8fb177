"""Files of embeddings: .npz with `symbols` (V,), the most frequent first, `rows` (V, C) of float32, and their `space`.

The space is a hash. Embeddings that are mapped into a space have that of the target. Files of other programs have none.
"""

import hashlib
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fairseq_xl.errors import UserError
from fairseq_xl.io.arrays import read_arrays, write_arrays


class Vectors(NamedTuple):
    """Symbols and their embeddings (V, C), in a space ("" if it is not known)."""

    symbols: "list[str]"
    rows: np.ndarray
    space: str = ""


def space_of(rows: np.ndarray) -> str:
    """The space of embeddings (V, C) that are not mapped into another one."""
    return hashlib.sha256(np.ascontiguousarray(rows).tobytes()).hexdigest()


def write(vectors: Vectors, path: str | Path) -> None:
    """Writes the file, complete or not at all."""
    write_arrays(path, symbols=np.array(vectors.symbols, dtype=np.str_), rows=vectors.rows, space=vectors.space)


def read(path: str | Path) -> Vectors:
    """Reads `Vectors`; raises `UserError` for a file that is missing, damaged or of another kind."""
    if not os.path.exists(path):
        raise UserError(f"{path}: no such file of embeddings")
    arrays: Any = read_arrays(path) or {}
    symbols, rows = arrays.get("symbols"), arrays.get("rows")
    kinds = [(array.ndim, array.dtype.kind) for array in (symbols, rows) if array is not None]
    if kinds != [(1, "U"), (2, "f")]:
        raise UserError(f"{path} is not a file of embeddings, or it is damaged")
    symbols = symbols.tolist()
    if len(rows) != len(symbols) or not np.isfinite(rows).all():
        raise UserError(f"{path} is damaged: it needs a finite vector for each of its {len(symbols)} symbols")
    return Vectors(symbols, rows, str(arrays.get("space", "")))
