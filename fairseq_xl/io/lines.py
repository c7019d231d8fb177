"""Raw lines of UTF-8 files (`fairseq_xl.io.text`), all or a buffer at a time. Imports neither torch nor fairseq."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from fairseq_xl.errors import UserError, check_number
from fairseq_xl.io.compressed import lines_of, read_text, text_of
from fairseq_xl.io.text import lines_in, text_of_line

STANDARD_INPUT = "standard input"
BUFFERED = 1000  # lines in memory by default; a terminal is answered line by line


def read_lines(path: Path | str, missing: str = "no such file") -> list[str]:
    """The lines of a file or of its compressed form, whose number `bounds` limits.

    Raises `UserError` for a file that cannot be read or is not UTF-8, with the words `missing` for one that is missing.
    """
    try:
        return lines_in(read_text(path), path)
    except FileNotFoundError:
        raise UserError(f"{path}: {missing}") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None


def read_buffers(path: str | None, size: int | None = None) -> Iterator[list[str]]:
    r"""Yields lists of at most `size` lines of a file, or of standard input, plain or compressed.

    The default is 1 at a terminal, else `BUFFERED`. Raises `UserError` for a missing file, and text that is not UTF-8.
    """
    if size is not None:
        check_number("--buffer-size", size, "1 or more")
    if path is None:
        stream = getattr(sys.stdin, "buffer", sys.stdin)
        yield from _buffers(stream, STANDARD_INPUT, size or (1 if sys.stdin.isatty() else BUFFERED))
        return
    try:
        with open(path, "rb") as file:
            yield from _buffers(text_of(file), path, size or BUFFERED)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None


def buffered_read(input: str, buffer_size: int) -> Iterator[list[str]]:
    """Yields buffers of lines, text and constraints between tabs, of `input` in fairseq-interactive; - is stdin."""
    for lines in read_buffers(None if input == "-" else input, buffer_size):
        yield ["\t".join(map(text_of_line, line.split("\t"))) for line in lines]


def _buffers(stream: BinaryIO | Any, name: str, size: int) -> Iterator[list[str]]:
    buffer: list[str] = []
    for line_number, line in enumerate(lines_of(stream, name), start=1):
        buffer += lines_in(line, name, line_number)
        if len(buffer) == size:
            yield buffer
            buffer = []
    if buffer:
        yield buffer
