"""The files of binarized text in fairseq's mmap format.

PREFIX.bin holds the tokens of all items. PREFIX.idx holds, after a header, the size of each item in tokens (int32) and
its byte offset in PREFIX.bin (int64). Imports neither torch nor fairseq.
"""

import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fairseq_xl.errors import UserError
from fairseq_xl.io.files import replacing

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
UINT16_SYMBOLS = 65500  # number of symbols from which on fairseq-preprocess writes uint32, before that uint16
_LAYOUT = struct.Struct("<9sQBQ")  # magic, version, type of the tokens, number of items
SIZE = _LAYOUT.size  # bytes of the header
#: types of tokens by the number that fairseq stores
TOKEN_TYPES = {
    code: np.dtype(name)
    for code, name in enumerate("uint8 int8 int16 int32 int64 float64 float64 uint16 uint32 uint64".split(), 1)
}
CODES = (4, 8, 9)  # types of tokens, by fairseq's number, that fairseq-preprocess writes: int32, uint16 and uint32


class Header(NamedTuple):
    """Number of the tokens' type in `TOKEN_TYPES`, and number of items."""

    code: int
    items: int

    @property
    def token_size(self) -> int:
        """Bytes of a token."""
        return TOKEN_TYPES[self.code].itemsize

    @property
    def file_size(self) -> int:
        """Bytes of the whole .idx file."""
        return SIZE + 12 * self.items

    def packed(self) -> bytes:
        """The header as it is written."""
        return _LAYOUT.pack(MAGIC, VERSION, self.code, self.items)


def read_header(path: str | os.PathLike) -> Header | None:
    """The header of an .idx file; None if the header, its version or its token type is invalid."""
    with open(path, "rb") as file:
        start = file.read(SIZE)
    if len(start) < SIZE:
        return None
    magic, version, code, items = _LAYOUT.unpack(start)
    return Header(code, items) if (magic, version) == (MAGIC, VERSION) and code in TOKEN_TYPES else None


def header_for(symbols: int, items: int) -> Header:
    """The header of a text of a dictionary, with the type of tokens that fairseq-preprocess chooses."""
    return Header(8 if symbols < UINT16_SYMBOLS else 9, items)


def write_index(path: str | os.PathLike, header: Header, sizes: np.ndarray) -> None:
    """Writes the .idx file of items of these sizes (items,) in tokens, whole or not at all."""
    offsets = np.zeros(header.items, np.int64)
    np.cumsum(sizes[:-1], dtype=np.int64, out=offsets[1:])
    with replacing(path) as file:
        file.write(header.packed() + sizes.astype(np.int32).tobytes())
        file.write((offsets * header.token_size).tobytes())


def check_sizes(index: Path, text: Path) -> dict[str, int]:
    """Checks the sizes of both files; returns the numbers of lines and tokens."""
    header = read_header(index)
    if header is None:
        raise UserError(f"{index} is damaged, or not an index that fairseq-preprocess writes with --dataset-impl mmap")
    actual, expected = index.stat().st_size, header.file_size
    if actual != expected:
        raise UserError(f"{index} is damaged or cut short: {header.items} items take {expected} bytes, it has {actual}")
    actual, expected = text.stat().st_size, 0
    if header.items:  # the end of the last one
        (size,) = np.fromfile(index, np.int32, 1, offset=SIZE + 4 * (header.items - 1))
        (offset,) = np.fromfile(index, np.int64, 1, offset=SIZE + 12 * header.items - 8)
        expected = int(offset) + int(size) * header.token_size
    if actual != expected:
        raise UserError(
            f"{text} is damaged or cut short, or of another run than {index.name}: expected {expected} bytes, it has "
            f"{actual}"
        )
    return {"lines": header.items, "tokens": expected // header.token_size}


def write_items(prefix: str | Path, items: Iterable[np.ndarray], symbols: int) -> np.ndarray:
    """Writes items (t,) of token ids below `symbols` as PREFIX.bin and PREFIX.idx; returns their lengths (n,)."""
    lengths = []
    with replacing(f"{prefix}.bin", make_folder=True) as file:
        for item in items:
            file.write(item.astype(TOKEN_TYPES[header_for(symbols, 0).code]).tobytes())
            lengths.append(len(item))
    write_index(f"{prefix}.idx", header_for(symbols, len(lengths)), np.array(lengths, np.int32))
    return np.array(lengths)
