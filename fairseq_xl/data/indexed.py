"""Opening binarised text."""

import struct
from pathlib import Path

import numpy as np
from fairseq.data import data_utils
from fairseq.data.indexed_dataset import _code_to_dtype as TOKEN_TYPES

from fairseq_xl.errors import UserError

#: magic, version, type of the tokens, number of items; behind it a size (int32) and a place (int64) for each
HEADER = struct.Struct("<9sQBQ")
MAGIC = b"MMIDIDX\x00\x00"


def is_begun(prefix):
    """Whether one of the two files of a text is there: what has one must have both."""
    return any(Path(f"{prefix}.{end}").exists() for end in ("bin", "idx"))


def open_text(prefix, language):
    """The items of ``PREFIX.bin`` and ``PREFIX.idx``, memory-mapped.

    Raises `UserError` for a text that is not there, that has not a single line (fairseq cannot map an empty file), or
    whose files are damaged or do not belong together, as far as their sizes tell.
    """
    for end in ("idx", "bin"):
        if not Path(f"{prefix}.{end}").is_file():
            raise UserError(f"{prefix}.{end}: no binarised text of language {language!r} there")
    if not Path(f"{prefix}.bin").stat().st_size:
        raise UserError(f"{prefix}: the text of language {language!r} is empty")
    _check_sizes(Path(f"{prefix}.idx"), Path(f"{prefix}.bin"))
    return data_utils.load_indexed_dataset(str(prefix), None)


def _check_sizes(index, text):
    with open(index, "rb") as file:
        header = file.read(HEADER.size)
    magic, version, code, items = HEADER.unpack(header) if len(header) == HEADER.size else (b"", 0, 0, 0)
    if (magic, version) != (MAGIC, 1) or code not in TOKEN_TYPES:
        raise UserError(f"{index} is damaged, or no index that fairseq-preprocess writes with --dataset-impl mmap")
    found, expected = index.stat().st_size, HEADER.size + 12 * items
    if found != expected:
        raise UserError(f"{index} is damaged or cut short: {items} items take {expected} bytes, it has {found}")
    sizes = np.memmap(index, mode="r", dtype=np.int32, offset=HEADER.size, shape=(items,)) if items else np.zeros(0)
    found, expected = text.stat().st_size, int(sizes.sum(dtype=np.int64)) * np.dtype(TOKEN_TYPES[code]).itemsize
    if found != expected:
        raise UserError(
            f"{text} is damaged or cut short, or of another run than {index.name}: expected {expected} bytes, it has "
            f"{found}"
        )
