"""Word vectors in the text format of word2vec and fastText: initial token embeddings (Lample & Conneau 2019, EMB)."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io.compressed import SUFFIXES, text_of

#: suffixes of such files, which may be compressed
TEXT = (".vec", ".txt")


def is_word_vectors(path: str) -> bool:
    """Whether the name of a file is one of word vectors."""
    name = Path(path).name
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return name.endswith(TEXT)


def read(path: str, symbols: list[str], table: Tensor) -> tuple[Tensor, int]:
    """Replaces the rows of symbols that a file of word vectors has.

    A line is a symbol and its numbers, separated by blanks; the first line may hold the size of the table.

    Args:
        path: the file. Its symbols are the pieces of the binarized text, with U+2581 in front of a word.
        symbols: those of the dictionary, V.
        table: (V, C)

    Returns: the new table (V, C), and the number of replaced rows.
    Raises `UserError` for a missing or malformed file, another number of channels, or no common symbol.
    """
    places, rows, found = {symbol: row for row, symbol in enumerate(symbols)}, table.clone(), set()
    channels = table.size(1)
    for number, line in enumerate(_lines(path), start=1):
        symbol, *numbers = line.rstrip(" \r").split(" ")
        if not numbers or (number == 1 and len(numbers) == 1):  # an empty line, or the size of the table
            continue
        if len(numbers) != channels:
            raise UserError(f"{path}, line {number}: {len(numbers)} numbers, --embed-dim is {channels}")
        if symbol in places and symbol not in found:
            try:
                vector = np.array(numbers, dtype=np.float32)
            except ValueError:
                raise UserError(f"{path}, line {number}: not {channels} numbers: {quoted(line[:60])}") from None
            if not np.isfinite(vector).all():
                raise UserError(f"{path}, line {number}: the vector of {quoted(symbol)} is not finite")
            rows[places[symbol]] = torch.from_numpy(vector)
            found.add(symbol)
    if not found:
        raise UserError(f"{path} has none of the dictionary's symbols: its words must be pieces of the binarized text")
    return rows, len(found)


def _lines(path: str) -> Iterator[str]:
    """The lines of a file, decompressed; the errors of `read`."""
    number = 0
    try:
        with open(path, "rb") as file:
            for line in text_of(file):
                number += 1
                yield line.decode("utf-8").rstrip("\n")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}, line {number}: not UTF-8") from None
