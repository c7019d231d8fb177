"""Text files, plain or compressed with gzip, xz or zstandard: the first bytes decide, not the name."""

import bz2
import contextlib
import functools
import io
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from fairseq_xl.errors import UserError
from fairseq_xl.io import bounds

SUFFIXES = (".gz", ".xz", ".zst")
MAGIC = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstandard"}  # none of them is UTF-8
INPUT = 1 << 12  # compressed bytes at a time: at most 128 MiB of text
BUFFER = 1 << 20  # bytes


def added_suffix(path: Path | str) -> str:
    """The suffix of SUFFIXES under which the file exists, "" if it exists without one or not at all."""
    return next((suffix for suffix in ("", *SUFFIXES) if Path(f"{path}{suffix}").is_file()), "")


def without_suffix(name: str) -> str:
    """A file name without its suffix of compressed files, such as ``.gz``."""
    return name.removesuffix(next(filter(name.endswith, SUFFIXES), ""))


def stored(path: Path | str) -> Path:
    """The path of the file, or of its compressed form if only that exists."""
    return Path(f"{path}{added_suffix(path)}")


def text_of(file: io.BufferedReader, kinds: Mapping[bytes, str] = MAGIC) -> BinaryIO:
    """Decompresses a file by its first bytes, `kinds`; `UserError` for damaged data and growth beyond `io.bounds`."""
    start = file.peek(max(map(len, kinds)))
    kind = next((kind for magic, kind in kinds.items() if start.startswith(magic)), None)
    return io.BufferedReader(_Reader(_bounded(_decompressed(file, kind), file.name)), BUFFER) if kind else file


def lines_of(text: BinaryIO | Any, name: str) -> Iterator[bytes]:
    r"""Yields the lines of a stream with their ends, b"\n"; raises `UserError` for one above `bounds.LONGEST_LINE`."""
    for line_number, line in enumerate(iter(functools.partial(text.readline, bounds.LONGEST_LINE + 1), b""), start=1):
        if len(line) > bounds.LONGEST_LINE and not line.endswith(b"\n"):
            raise too_long(name, line_number)
        yield line


def too_long(name: object, line_number: int) -> UserError:
    """The error for a line above `bounds.LONGEST_LINE`."""
    return UserError(f"{name}, line {line_number}: a line of more than {bounds.LONGEST_LINE >> 20} MiB: is it text?")


def read_text(path: Path | str, lines: bool = True) -> bytes:
    """The whole text of a file or of its compressed form; raises the errors of `open` and `text_of`.

    Raises `UserError` for a byte 0, which a crash of a file system leaves, and for lines beyond `fairseq_xl.io.bounds`.
    """
    with open(stored(path), "rb") as file:
        text = text_of(file).read()
    if (zero := text.find(b"\0")) >= 0:
        line_number = text.count(b"\n", 0, zero) + 1
        raise UserError(f"{path}, line {line_number}: a byte 0, which UTF-8 text does not have: is the file damaged?")
    if lines and (count := text.count(b"\n")) > bounds.MOST_LINES:
        raise UserError(f"{path} has {count:,} lines, and at most {bounds.MOST_LINES:,} are read into memory")
    begin = 0
    while lines and len(text) - begin > bounds.LONGEST_LINE:
        end = text.rfind(b"\n", begin, begin + bounds.LONGEST_LINE + 1) + 1
        if not end:
            raise too_long(path, text.count(b"\n", 0, begin) + 1)
        begin = end
    return text


def _bounded(pieces: Iterator[tuple[int, bytes]], name: str) -> Iterator[bytes]:
    """Yields the text of pairs (compressed size, text).

    Raises `UserError` for text beyond `bounds.GROWTH` and `bounds.FREE_GROWTH`. Text that grows faster than
    `bounds.GROWTH` is held back until `bounds.FREE_GROWTH` is used up, so that a reader gets no part of a file that is
    refused.
    """
    excess, waiting, size = 0, [], 0
    for read, text in pieces:
        excess = max(0, excess + len(text) - bounds.GROWTH * read)
        if excess > bounds.FREE_GROWTH:
            raise UserError(
                f"{name} is refused: a part of it is more than {bounds.GROWTH} times as large when it is decompressed, "
                "which text is not; decompress it yourself if it is right"
            )
        waiting.append(text)
        size += len(text)
        if not excess or size > 2 * bounds.FREE_GROWTH:
            yield from waiting
            waiting, size = [], 0
    yield from waiting


def _decompressed(file: BinaryIO, kind: str) -> Iterator[tuple[int, bytes]]:
    """Yields (compressed size, text) for each part of a file of one or more streams, each perhaps followed by zeros."""
    begin, damaged = _decompressor(kind, file.name)
    data = file.read(INPUT)
    try:
        while data:
            part = begin()
            while not part.eof:
                if not data:
                    raise UserError(f"{file.name} is truncated: its {kind} data has no end")
                yield len(data), part.decompress(data)
                data = b"" if part.eof else file.read(INPUT)
            data = part.unused_data.lstrip(b"\0")
            while not data and (block := file.read(INPUT)):
                data = block.lstrip(b"\0")
    except damaged as error:
        raise UserError(f"{file.name} is damaged: its {kind} data can't be decompressed ({error})") from error


def _decompressor(kind: str, name: str) -> tuple[Callable, type[Exception]]:
    """A factory of decompressors and the exception that they raise for damaged data."""
    if kind == "gzip":
        return lambda: zlib.decompressobj(wbits=16 + zlib.MAX_WBITS), zlib.error
    if kind == "bzip2":
        return bz2.BZ2Decompressor, OSError
    if kind == "xz":
        return functools.partial(lzma.LZMADecompressor, memlimit=bounds.XZ_MEMORY), lzma.LZMAError
    with contextlib.suppress(ImportError):
        from compression import zstd  # Python 3.14 and newer

        return zstd.ZstdDecompressor, zstd.ZstdError
    try:
        import zstandard

        return lambda: zstandard.ZstdDecompressor().decompressobj(), zstandard.ZstdError
    except ImportError:
        needed = "needs a package that is not installed: pip install zstandard"
        raise UserError(f"{name} is compressed with zstandard, which {needed}") from None


class _Reader(io.RawIOBase):
    """A file whose content is an iterator of bytes."""

    def __init__(self, pieces: Iterator[bytes]):
        self.pieces, self.rest = pieces, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.rest:
            piece = next(self.pieces, None)
            if piece is None:
                return 0
            self.rest = memoryview(piece)
        size = min(len(buffer), len(self.rest))
        buffer[:size], self.rest = self.rest[:size], self.rest[size:]
        return size
