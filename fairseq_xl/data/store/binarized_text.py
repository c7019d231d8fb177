"""Binarized text: maps its files and reads a bounded amount of them, whatever their size.

Imports neither torch nor fairseq.
"""

from pathlib import Path
from typing import cast

import numpy as np

from fairseq_xl.data import Numbers
from fairseq_xl.data.store.manifest import check_fingerprint
from fairseq_xl.data.store.plain_folder import located
from fairseq_xl.errors import UserError
from fairseq_xl.io.arrays import Reopened, mapped
from fairseq_xl.io.indexed_text import SIZE, TOKEN_TYPES, Header, check_sizes, read_header

SAMPLED_STRETCHES, STRETCH = 64, 4096  # number and length of the stretches that `evenly_spaced` samples
BLOCK_LINES = 1 << 16  # lines that are read at a time where all are needed
BLOCK_TOKENS = 1 << 21  # tokens that are read at a time; more only for a longer line


class Text(Reopened):
    """The items of a binarized text, memory-mapped: arrays (t,) int64 that end in ``</s>``.

    Args:
        prefix: prefix of the ``.bin`` and ``.idx`` files, which `open_text` has checked.
        symbols: size of the dictionary that token ids are checked against; None: no check.
    """

    def __init__(self, prefix: str | Path, language: str, symbols: int | None = None):
        self.prefix, self.language, self.symbols = str(prefix), language, symbols
        header = cast(Header, read_header(f"{prefix}.idx"))
        #: (n,) number of tokens of each item, and its byte offset in the .bin file
        self.sizes = mapped(f"{prefix}.idx", np.int32, SIZE, header.items)
        self.offsets = mapped(f"{prefix}.idx", np.int64, SIZE + self.sizes.nbytes, header.items)
        #: the whole text
        self.tokens = mapped(f"{prefix}.bin", TOKEN_TYPES[header.code])

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, line: int) -> Numbers:
        return self.read(*self.bounds(line)).astype(np.int64)

    def read(self, begin: int, end: int) -> Numbers:
        """The tokens from index `begin` to `end`, (t,); `UserError` for an id outside the dictionary."""
        tokens = self.tokens[begin:end]
        check_numbers(tokens, self.symbols, self.prefix, self.language)
        return tokens

    def load(self, begin: int, end: int) -> Numbers:
        """The tokens from index `begin` to `end`, (t,), read from the file; for reading the whole text in parts."""
        offset = int(begin) * self.tokens.itemsize
        return np.fromfile(f"{self.prefix}.bin", self.tokens.dtype, int(end - begin), offset=offset)

    def bounds(self, line: int) -> tuple[int, int]:
        """Indices in `tokens` where a line begins and ends; `UserError` if its offsets are invalid."""
        offset, size, width = int(self.offsets[line]), int(self.sizes[line]), self.tokens.itemsize
        if offset < 0 or offset % width or size < 1 or offset + size * width > self.tokens.nbytes:
            raise UserError(
                f"{self.prefix}.idx is damaged: line {line + 1} begins at byte {offset} of the text and has {size} "
                "tokens; restore it, or remove it and run `fairseq-xl data prepare` again"
            )
        return offset // width, offset // width + size

    def load_sizes(self, first: int, count: int) -> Numbers:
        """Numbers of tokens of up to `count` lines from a line on, (n,) int64, read from the file."""
        count = min(count, len(self) - first)
        return np.fromfile(f"{self.prefix}.idx", np.int32, count, offset=SIZE + 4 * first).astype(np.int64)

    def counts(self, tokens: int | None = None) -> Numbers:
        """Number of occurrences of each of the V symbols, (V,), in this many tokens from the beginning; None: in all.

        Raises `UserError` for an id outside the dictionary.
        """
        counts = np.zeros(cast(int, self.symbols), dtype=np.int64)
        end = len(self.tokens) if tokens is None else min(len(self.tokens), tokens)
        for begin in range(0, end, BLOCK_TOKENS):
            block = self.load(begin, min(begin + BLOCK_TOKENS, end))
            check_numbers(block, self.symbols, self.prefix, self.language)
            counts += np.bincount(block.astype(np.int64), minlength=len(counts))
        return counts


def check_numbers(tokens: Numbers, symbols: int | None, prefix: str, language: str) -> None:
    """Raises `UserError` if tokens (t,) of a text hold an id outside the dictionary of `symbols` symbols."""
    if symbols is None or not len(tokens):
        return
    least, most = tokens.min(), tokens.max()
    if least < 0 or most >= symbols:
        raise UserError(
            f"{prefix}.bin: the text of language {language!r} has the token id {least if least < 0 else most}, the "
            f"dictionary {symbols} symbols: the file is damaged or was binarized with another dictionary"
        )


def open_text(prefix: str | Path, language: str, symbols: int | None = None) -> Text:
    """Opens the `Text` in ``PREFIX.bin`` and ``PREFIX.idx``.

    Only samples of the files are read: `fairseq-xl data verify` reads all of them. Raises `UserError` if the
    text does not exist or has no line, if the sizes of its files show that they are damaged or do not belong together,
    or if it differs from the manifest of the data folder (`check_fingerprint`).
    """
    folder, name = Path(prefix).parent.parent, "/".join(Path(prefix).parts[-2:])
    files = {end: located(f"{prefix}.{end}") for end in ("idx", "bin")}
    for file, beside in (files.values(), reversed(files.values())):
        if not file.is_file():
            why = f": {file.name} is missing, but {beside.name} exists" if beside.is_file() else ""
            raise UserError(f"{file}: no binarized text of language {language!r} there{why}")
    if not files["bin"].stat().st_size:
        raise UserError(f"{prefix}: the text of language {language!r} is empty")
    counts = check_sizes(files["idx"], files["bin"])
    check_fingerprint(folder, f"{name}.idx", **counts)
    check_fingerprint(folder, f"{name}.bin")
    return Text(files["idx"].with_suffix(""), language, symbols)


def evenly_spaced(available: int) -> Numbers:
    """A sample of the numbers below `available`, in order: `SAMPLED_STRETCHES` evenly spaced stretches of `STRETCH`.

    All numbers if these stretches cover them.
    """
    if available <= SAMPLED_STRETCHES * STRETCH:
        return np.arange(available)
    begins = [(available - STRETCH) * i // (SAMPLED_STRETCHES - 1) for i in range(SAMPLED_STRETCHES)]
    return (np.array(begins)[:, None] + np.arange(STRETCH)).reshape(-1)
