"""The .idx file of binarized text in fairseq's mmap format. Imports neither torch nor fairseq.

After the header the file holds the size of each item in tokens (int32) and its byte offset in the .bin file (int64).
"""

import os
import struct
from typing import NamedTuple

import numpy as np

from fairseq_xl.io.files import replacing

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
UINT16_SYMBOLS = 65500  # number of symbols from which on fairseq-preprocess writes uint32, before that uint16
_LAYOUT = struct.Struct("<9sQBQ")  # magic, version, type of the tokens, number of items
SIZE = _LAYOUT.size  # bytes
#: types of tokens by the number that fairseq stores
TOKEN_TYPES = {
    code: np.dtype(name)
    for code, name in enumerate("uint8 int8 int16 int32 int64 float64 float64 uint16 uint32 uint64".split(), 1)
}


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


def read_last(path: str | os.PathLike, items: int) -> tuple[int, int]:
    """Byte offset and size in tokens of the last item, where a text ends; zeros for a text without items."""
    if not items:
        return 0, 0
    (size,) = np.fromfile(path, np.int32, 1, offset=SIZE + 4 * (items - 1))
    (offset,) = np.fromfile(path, np.int64, 1, offset=SIZE + 4 * items + 8 * (items - 1))
    return int(offset), int(size)
