"""Word vectors as initial token embeddings (Lample & Conneau 2019, section 4.2: EMB).

Reads the text format of word2vec and fastText, and .npz files of `fairseq-xl embeddings skipgram`, `embeddings map` and
`embeddings join`.
"""

import re
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fairseq_xl.checkpoints import embedding_files
from fairseq_xl.data.vocabulary.special_symbols import WORD_START
from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io.compressed import lines_of, text_of, without_suffix
from fairseq_xl.io.text import decoded

#: suffixes of text files, which may be compressed
TEXT = (".vec", ".txt")
ARRAYS = ".npz"
#: first bytes of the binary files of fastText (a fixed number) and word2vec (the size of the table, in text)
BINARY = re.compile(rb"\xba\x16\x4f\x2f|\d+ \d+\n")


def is_word_vectors(path: str) -> bool:
    """Whether the name of a file is one of word vectors."""
    return without_suffix(Path(path).name).endswith((*TEXT, ARRAYS))


def check_not_binary(path: str) -> None:
    """Raises `UserError` for a model of fastText or vectors of word2vec in their binary formats, .bin."""
    if path.endswith(".bin") and Path(path).is_file():
        with open(path, "rb") as file:
            if BINARY.match(file.read(32)):
                raise UserError(f"{path} is a binary file of fastText or word2vec: give the .vec beside it")


def read(path: str, symbols: list[str], table: Tensor) -> tuple[Tensor, int]:
    """Replaces the rows of `symbols` in the `table` (V, C) that a file has; returns the new table, and their number.

    A line of a text file is a symbol, a piece of the binarized text, and its numbers, separated by spaces; the first
    line may hold the size of the table. One factor scales the vectors to the mean square of the rows that they replace.

    Raises `UserError` for a damaged file, another number of channels, no common symbol, or zeros only; and for vectors
    of words in place of pieces: no common symbol begins a word although symbols of the dictionary do.
    """
    indices = {symbol: row for row, symbol in enumerate(symbols)}
    vectors: dict[int, np.ndarray] = {}  # row -> vector (C,); the first one of a symbol counts
    is_text = not path.endswith(ARRAYS)
    for symbol, vector in _text(path, indices, table.size(1)) if is_text else _arrays(path, table.size(1)):
        if symbol in indices:
            vectors.setdefault(indices[symbol], vector)
    if not vectors:
        raise UserError(f"{path} has none of the dictionary's symbols: its words must be pieces of the binarized text")
    if any(symbol.startswith(WORD_START) for symbol in symbols):
        if not any(symbols[row].startswith(WORD_START) for row in vectors):
            raise UserError(
                f"{path} has vectors of words, not of the dictionary's pieces: none of the {len(vectors)} symbols that "
                f"both have begins with {WORD_START}; train the vectors on the binarized text's pieces"
            )
    rows, new = torch.tensor(list(vectors)), torch.from_numpy(np.stack(list(vectors.values())))
    size = new.square().mean().sqrt()
    if size == 0:
        raise UserError(f"{path}: all vectors of the dictionary's symbols are zero")
    replaced = table.clone()
    replaced[rows] = (new * (table[rows].square().mean().sqrt() / size)).to(table)
    return replaced, len(vectors)


def _arrays(path: str, channels: int) -> Iterator[tuple[str, np.ndarray]]:
    """Symbols of a .npz file and their vectors (C,)."""
    content = embedding_files.read(path)
    if content.rows.shape[1] != channels:
        raise UserError(f"{path}: vectors of {content.rows.shape[1]} numbers, --embed-dim is {channels}")
    return zip(content.symbols, content.rows)


def _text(path: str, symbols: Collection[str], channels: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the known symbols of a text file and their vectors (C,)."""
    try:
        with open(path, "rb") as file:
            for line_number, content in enumerate(lines_of(text_of(file), path), start=1):
                where, line = f"{path}, line {line_number}", decoded(content, path, line_number).rstrip("\n")
                symbol, *values = line.rstrip(" \r").split(" ")
                if not values or (line_number == 1 and len(values) == 1):  # the size of the table
                    continue
                if len(values) != channels:
                    raise UserError(f"{where}: {len(values)} numbers, --embed-dim is {channels}")
                if symbol not in symbols:
                    continue
                try:
                    vector = np.array(values, dtype=np.float32)
                except ValueError:
                    raise UserError(f"{where}: not {channels} numbers: {quoted(line[:60])}") from None
                if not np.isfinite(vector).all():
                    raise UserError(f"{where}: the vector of {quoted(symbol)} is not finite")
                yield symbol, vector
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
