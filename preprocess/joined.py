"""Counts and joins binarized texts in fairseq's mmap format; memory does not grow with them."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fairseq_xl.errors import UserError
from fairseq_xl.io.indexed_text import SIZE, Header, read_header

CHUNK = 1 << 20  # sizes of lines in memory at a time


def header_of(index: Path) -> Header:
    """Reads the header of an .idx file; raises UserError for another file."""
    header = read_header(index)
    if header is None:
        raise UserError(f"{index} is not an index that fairseq-preprocess writes")
    return header


def totals(index: Path) -> dict[str, int]:
    """Counts the lines and tokens, </s> included, of an .idx file, which is read in chunks."""
    lines = header_of(index).items
    return {"lines": lines, "tokens": sum(int(chunk.sum(dtype=np.int64)) for chunk in _chunks(index, SIZE, lines))}


def _chunks(path: Path, offset: int, count: int) -> Iterator[np.ndarray]:
    """Yields the sizes (k,) int32 of `count` lines from byte `offset` of a file on, in chunks, without a memory map."""
    for first in range(0, count, CHUNK):
        yield np.fromfile(path, np.int32, min(CHUNK, count - first), offset=offset + first * 4)


class Joined:
    """Joins binarized texts to one at a prefix; a context manager. `finish` makes the files complete."""

    def __init__(self, prefix: Path):
        self.text, self.index, self.sizes = (Path(f"{prefix}.{end}") for end in ("bin", "idx", "sizes"))
        self.code = self.lines = 0

    def __enter__(self) -> "Joined":
        self.tokens_file, self.sizes_file = open(self.text, "wb"), open(self.sizes, "wb")
        return self

    def __exit__(self, *_: object) -> None:
        self.tokens_file.close()
        self.sizes_file.close()

    def append(self, prefix: Path) -> None:
        """Appends a text."""
        index = Path(f"{prefix}.idx")
        self.code, count = header_of(index)
        with open(f"{prefix}.bin", "rb") as file:
            shutil.copyfileobj(file, self.tokens_file, CHUNK)
        for chunk in _chunks(index, SIZE, count):
            self.sizes_file.write(chunk.tobytes())
        self.lines += count

    def finish(self) -> None:
        """Writes the index: its header, the sizes, and the byte offsets (int64) of all lines."""
        self.__exit__()
        header, offset = Header(self.code, self.lines), 0
        with open(self.index, "wb") as file:
            file.write(header.packed())
            with open(self.sizes, "rb") as source:
                shutil.copyfileobj(source, file, CHUNK)
            for chunk in _chunks(self.sizes, 0, self.lines):
                ends = offset + np.cumsum(chunk, dtype=np.int64) * header.token_size
                file.write(np.append(offset, ends[:-1]).tobytes())
                offset = int(ends[-1])
        self.sizes.unlink()
