"""A file of embeddings: an .npz of `symbols` (V,), the most frequent first, and `rows` (V, C) of float32."""

import zipfile
from typing import NamedTuple

import numpy as np

from fairseq_xl import compat
from fairseq_xl.errors import UserError


class Vectors(NamedTuple):
    """Symbols and their embeddings (V, C)."""

    symbols: "list[str]"
    rows: np.ndarray


def write(vectors, path):
    """Writes the file, complete or not at all."""
    with compat.replacing(path) as stream:
        np.savez(stream, symbols=np.array(vectors.symbols, dtype=np.str_), rows=vectors.rows)


def read(path):
    """Reads `Vectors`; `UserError` for a file that is missing, damaged or another."""
    try:
        with np.load(path) as content:
            symbols, rows = content["symbols"].tolist(), content["rows"]
    except FileNotFoundError:
        raise UserError(f"{path}: no such file of embeddings") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is no file of embeddings, or it is damaged") from error
    if rows.ndim != 2 or len(rows) != len(symbols) or not np.isfinite(rows).all():
        raise UserError(f"{path} is damaged: it needs a finite vector for each of its {len(symbols)} symbols")
    return Vectors(symbols, rows)
