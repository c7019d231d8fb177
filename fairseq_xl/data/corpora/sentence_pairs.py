"""Sentence pairs of parallel text."""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_xl.data import Numbers
from fairseq_xl.data.corpora.line_corpus import LineCorpus
from fairseq_xl.data.corpora.negatives import Candidates, MinedNegatives, RandomNegatives, length_codes
from fairseq_xl.data.store.binarized_text import open_text
from fairseq_xl.data.store.cached_tables import IN_MEMORY_LINES, table
from fairseq_xl.errors import UserError
from fairseq_xl.io.arrays import Reopened
from fairseq_xl.io.fingerprints import sha256_of


class SentencePairs(Reopened, LineCorpus):
    """Binarized parallel text of one language pair, aligned line by line.

    An example is a line. Lines that are empty on either side (document boundaries, missing translations) are not pairs.

    Args:
        prefix: prefix of the four files, ``DATA/en-de/train.en-de``.
        first, second: codes of the two languages, suffixes of the files.
        symbols: size of the dictionary that token ids are checked against; None: no check.
    """

    num_languages, num_texts, described_text = 2, 2, "parallel text"
    all_long = "{path}: every pair has a side of more than {length} tokens"
    some_long = "%s: %s%d of %d pairs have a side of more than %d tokens and are left out"

    def __init__(self, prefix: str | Path, first: str, second: str, symbols: int | None = None):
        self.prefix, self.codes, self.symbols = str(prefix), (first, second), symbols
        sides = [open_text(f"{prefix}.{code}", code, symbols) for code in self.codes]
        lines = [len(side) for side in sides]
        if lines[0] != lines[1]:
            raise UserError(f"{prefix}: {lines[0]} lines of {first!r} but {lines[1]} of {second!r}")
        self._samplers: dict[tuple[int, bool], Any] = {}  # (length, mined or not) -> the sampler of negatives
        super().__init__(self.prefix, sides, f"{prefix}: no pair of two sentences of {first!r} and {second!r}")

    @property
    def sizes(self) -> Numbers:
        """Numbers of tokens of both sides of all lines, (lines, 2) int32: 8 bytes a line."""
        return np.stack([side.sizes for side in self.sides], axis=1)

    @cached_property
    def filled(self) -> Numbers:
        """All lines that are pairs, (n,) int64: 8 bytes a pair."""
        return np.concatenate([first + np.flatnonzero((sizes > 1).all(axis=1)) for first, sizes in self.blocks()])

    def sorted_by_length(self, length: int) -> Numbers:
        """All pairs with sides of at most `length` tokens, sorted by the second side's length: (n,) `length_codes`."""

        def rows() -> Iterator[Numbers]:
            for first, sizes in self.blocks():
                fits = np.flatnonzero(((sizes > 1) & (sizes <= length)).all(axis=1))
                yield length_codes(sizes[fits, 1], first + fits)

        self.measured(length)
        return table(f"{self.prefix}.by-length-{length}.table", self.sides, rows, None)

    @cached_property
    def candidates(self) -> Candidates:
        """The `Candidates` for negatives; the first time it takes a second for each million pairs."""
        return Candidates(self)

    @cached_property
    def fingerprint(self) -> list[int]:
        """Hashes of the four files of the text; the first time they take a second for each GB."""

        def rows() -> Iterator[Numbers]:
            paths = (f"{side.prefix}.{end}" for side in self.sides for end in ("idx", "bin"))
            yield np.array([[int(sha256_of(path)[:15], 16) for path in paths]])

        return table(f"{self.prefix}.hashes.table", self.sides, rows, 4)[0].tolist()

    def negatives(self, lines: Numbers, length: int, keys: Numbers, mined: bool = False) -> list[Numbers]:
        """Samples a sentence of the second language that is not the translation (Huang et al. 2019, section 3).

        From `lines` (B,), pairs of at most `length` tokens per side, and the keys of the examples (B,) uint64: a list
        of B sentences of at most `length` tokens, int64 arrays that end in ``</s>``, from the `mined` ones or from all
        of similar length. Raises `UserError` if there are no mined negatives, or if they were mined from another text.
        """
        negative_lines = self._negatives(length, mined).choose(np.asarray(lines), keys)
        return [self.sides[1][line] for line in negative_lines]

    def sizes_with_negatives(self, lines: Numbers, length: int, mined: bool = False) -> Numbers:
        """Tokens (n,) of each pair: of the first sentence, and of the longer of translation and longest negative."""
        first, second = self.sides_of(lines).T.astype(np.int64)
        return first + np.maximum(second, self._negatives(length, mined).longest(lines))

    def prepare_negatives(self, length: int, mined: bool) -> None:
        """Reads the data of `negatives` once, before worker processes start; raises the same `UserError`."""
        if mined and self.lines <= IN_MEMORY_LINES:  # in a longer text some pair lacks a mined one that fits
            if self._negatives(length, mined).fitting(self.all_examples(length)[0])[1].all(axis=0)[0]:
                return
        _ = self._negatives(length, mined), self.candidates

    def _negatives(self, length: int, mined: bool) -> Any:
        if (length, mined) not in self._samplers:
            self._samplers[length, mined] = (MinedNegatives if mined else RandomNegatives)(self, length)
        return self._samplers[length, mined]
