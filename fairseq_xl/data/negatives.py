"""Mined negatives of sentence pairs, kept beside the pairs: PREFIX.negatives.npz (U5)."""

import zipfile
import zlib
from pathlib import Path

import numpy as np

from fairseq_xl.errors import UserError


def negatives_file(prefix):
    """Where the negatives of the pairs `prefix` are."""
    return Path(f"{prefix}.negatives.npz")


def fingerprint(sizes):
    """Sizes of both sides of all lines, (lines, 2) -> a number that tells this text from others."""
    return zlib.crc32(np.ascontiguousarray(sizes, dtype=np.int64).tobytes())


def read_negatives(prefix, sizes):
    """The negatives of pairs whose lines have these `sizes` -> (lines, k) int32, lines of the second side; -1: none.

    Raises `UserError` for a missing or damaged file, and for that of another text.
    """
    path = negatives_file(prefix)
    if not path.is_file():
        raise UserError(f"{path}: no mined negatives; `python -m fairseq_xl.mining` writes them")
    try:
        with np.load(path, allow_pickle=False) as file:
            negatives, text = file["negatives"], int(file["text"])
    except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile, zlib.error):
        raise UserError(f"{path} is damaged; `python -m fairseq_xl.mining` writes it anew") from None
    if text != fingerprint(sizes) or len(negatives) != len(sizes):
        raise UserError(f"{path} was mined from another text; `python -m fairseq_xl.mining` writes it anew")
    return negatives
