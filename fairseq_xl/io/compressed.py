"""Text files, plain or compressed with gzip, xz or zstandard: the first bytes decide, not the name."""

import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from fairseq_xl.errors import UserError

SUFFIXES = (".gz", ".xz", ".zst")
MAGIC = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstandard"}  # none of them is UTF-8
INPUT = 1 << 12  # compressed bytes at a time: at most 128 MiB of text
BUFFER = 1 << 20  # bytes


def added_suffix(path: Path | str) -> str:
    """The suffix of SUFFIXES under which the file exists, "" if it exists without one or not at all."""
    return next((suffix for suffix in ("", *SUFFIXES) if Path(f"{path}{suffix}").is_file()), "")


def stored(path: Path | str) -> Path:
    """The path of the file, or of its compressed form if only that exists."""
    return Path(f"{path}{added_suffix(path)}")


def text_of(file: io.BufferedReader) -> BinaryIO:
    """The text of a file opened for reading bytes, decompressed if needed.

    Reading raises `UserError` for damaged or truncated data, and if the package zstandard is needed and not installed.
    """
    start = file.peek(max(map(len, MAGIC)))
    kind = next((kind for magic, kind in MAGIC.items() if start.startswith(magic)), None)
    return io.BufferedReader(_Reader(_decompressed(file, kind)), BUFFER) if kind else file


def read_text(path: Path | str) -> bytes:
    """The whole text of a file or of its compressed form; raises the errors of `open` and `text_of`."""
    with open(stored(path), "rb") as file:
        return text_of(file).read()


def _decompressed(file: BinaryIO, kind: str) -> Iterator[bytes]:
    """The text, in pieces, of a file of one or more compressed streams, each perhaps followed by zeros."""
    begin, damaged = _decompressor(kind, file.name)
    data = file.read(INPUT)
    try:
        while data:
            part = begin()
            while not part.eof:
                if not data:
                    raise UserError(f"{file.name} is truncated: its {kind} data has no end")
                yield part.decompress(data)
                data = b"" if part.eof else file.read(INPUT)
            data = part.unused_data.lstrip(b"\0")
            while not data and (more := file.read(INPUT)):
                data = more.lstrip(b"\0")
    except damaged as error:
        raise UserError(f"{file.name} is damaged: its {kind} data can't be decompressed ({error})") from error


def _decompressor(kind: str, name: str) -> tuple[Callable, type[Exception]]:
    """A factory of decompressors and the exception that they raise for damaged data."""
    if kind == "gzip":
        return lambda: zlib.decompressobj(wbits=16 + zlib.MAX_WBITS), zlib.error
    if kind == "xz":
        return lzma.LZMADecompressor, lzma.LZMAError
    try:
        from compression import zstd  # Python 3.14 and newer

        return zstd.ZstdDecompressor, zstd.ZstdError
    except ImportError:
        pass
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
