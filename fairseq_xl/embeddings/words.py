"""Embeddings of words: means of their pieces' rows in an embedding matrix (Lample & Conneau 2019, section 4.5)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_xl.checkpoints import embedding_files
from fairseq_xl.checkpoints.identity import open_checkpoint
from fairseq_xl.checkpoints.parameter_names import TOKENS
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.data.vocabulary.special_symbols import WORD_START
from fairseq_xl.data.vocabulary.text_encoder import TextEncoder
from fairseq_xl.errors import UserError

ARRAYS = ".npz"


class WordEmbeddings:
    """Maps words to embeddings, with the dictionary and the sub-words of the folder `data`.

    `files` is {language: file}; the key None stands for all other languages. A file is a checkpoint, or a .npz of
    `fairseq-xl embeddings skipgram`, `embeddings map` or `embeddings join`.
    """

    def __init__(self, files: dict[str | None, str], data: Any):
        self.dictionary = XLDictionary.load(Path(data) / "dict.txt")
        self.encode = TextEncoder(data, self.dictionary)
        self.tables = {language: self._table(file, Path(data)) for language, file in files.items()}
        widths = {file: table.shape[1] for file, (table, _) in zip(files.values(), self.tables.values())}
        if len(set(widths.values())) > 1:
            raise UserError(f"the embeddings differ in their channels: {widths}")

    def _table(self, file: str, data: Path) -> tuple[np.ndarray, np.ndarray]:
        """The embedding matrix (V, C), and whether it has each row, (V,). V vocabulary, C channels."""
        is_piece = self.dictionary.is_piece
        if file.endswith(ARRAYS):
            vectors = embedding_files.read(file)
            table = np.zeros((len(self.dictionary), vectors.rows.shape[1]), dtype=np.float32)
            indices = np.array([self.dictionary.indices.get(symbol, -1) for symbol in vectors.symbols])
            table[indices[indices >= 0]] = vectors.rows[indices >= 0]
            has_row = np.zeros(len(table), dtype=bool)
            has_row[indices[indices >= 0]] = True
            if not (has_row & is_piece).any():
                raise UserError(f"{file} has none of the pieces of {data / 'dict.txt'}")
            return table, has_row & is_piece
        state = open_checkpoint(file, self.dictionary, data / "dict.txt").state
        if TOKENS not in state:
            raise UserError(f"{file} has no token embeddings: {TOKENS} is missing")
        return state[TOKENS].float().numpy(), is_piece

    def __call__(self, words: Sequence[str], language: str) -> list[np.ndarray | None]:
        """Words of a language -> vectors (C,): the mean over the pieces; None for a word with an unknown piece."""
        file = language if language in self.tables else None
        if file not in self.tables:
            raise UserError(f"EMBEDDINGS has no file of {language}: it has those of {', '.join(map(str, self.tables))}")
        table, has_row = self.tables[file]
        pieces = [self.encode(word, language)[:-1] for word in words]
        return [table[row].mean(axis=0) if len(row) and has_row[row].all() else None for row in pieces]

    def have_no_common_piece(self, pair: tuple[str, str], languages: Sequence[str]) -> bool:
        """Whether two words of two languages have no piece in common."""
        first, second = (self.encode(word, language)[:-1] for word, language in zip(pair, languages))
        blank = self.dictionary.indices.get(WORD_START, -1)  # first piece of words without a piece that begins with it
        return not np.isin(first[first != blank], second).any()

    def pairs(
        self, pairs: Sequence[tuple[str, str]], languages: Sequence[str]
    ) -> tuple[list[int], np.ndarray, np.ndarray]:
        """Pairs of words of two languages -> indices of those with two vectors, and their vectors, (n, C) each."""
        sides = [self([pair[side] for pair in pairs], languages[side]) for side in (0, 1)]
        vectors = {i: (a, b) for i, (a, b) in enumerate(zip(*sides)) if a is not None and b is not None}
        if len(vectors) < 2:
            pair = "-".join(languages)
            raise UserError(f"{pair}: {len(vectors)} of {len(pairs)} pairs of words have embeddings; two are needed")
        first, second = (np.stack([pair[side] for pair in vectors.values()]) for side in (0, 1))
        return list(vectors), first, second
