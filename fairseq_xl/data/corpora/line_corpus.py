"""Base of corpora whose examples are lines of a text. n lines, k texts of each: one sentence, or two."""

import logging
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairseq_xl.data import Numbers
from fairseq_xl.data.corpora.base import Corpus
from fairseq_xl.data.corpora.sampling import draw_passes
from fairseq_xl.data.store import binarized_text
from fairseq_xl.data.store.binarized_text import Text, evenly_spaced
from fairseq_xl.errors import UserError

logger = logging.getLogger(__name__)


class LineCorpus(Corpus):
    """Lines that are neither empty nor too long.

    Lines are drawn at random and skipped if they do not qualify; no list is kept. Counts and means are exact up to
    262,144 lines and estimated from that many otherwise (`evenly_spaced`).

    `sides` are the k texts, which are aligned, `path` is the prefix of their files, and `none` the message of the
    `UserError` if all lines are empty.
    """

    all_long = "{path}: every sentence has more than {length} tokens"
    some_long = "%s: %s%d of %d sentences have more than %d tokens and are left out"

    def __init__(self, path: str, sides: list[Text], none: str):
        self.path, self.sides, self.lines = path, sides, len(sides[0])
        share = _filled(self.sides_of(evenly_spaced(self.lines))).mean()
        if not share and not any(_filled(sizes).any() for _, sizes in self.blocks()):
            raise UserError(none)
        self.sentences = max(1, round(share * self.lines))
        self.measured = lru_cache(maxsize=4)(self._measure)

    def texts(self, lines: Numbers, length: int) -> list[tuple[Numbers, ...]]:
        """The k sentences of each line, int64 arrays (t,) that end in ``</s>``."""
        return [tuple(side[line] for side in self.sides) for line in lines]

    def sides_of(self, lines: Any) -> Numbers:
        """Numbers of tokens of the texts of lines (n,): (n, k)."""
        return np.stack([side.sizes[lines] for side in self.sides]).T  # contiguous columns, for fast sums of rows

    def blocks(self) -> Iterator[tuple[int, Numbers]]:
        """Yields the first line of each block of the text, and the numbers of tokens (b, k), read from the files."""
        count = binarized_text.BLOCK_LINES
        for first in range(0, self.lines, count):
            yield first, np.stack([side.load_sizes(first, count) for side in self.sides], axis=1)

    def _measure(self, length: int) -> tuple[float, float]:
        """Share of the lines that have texts of 2 to `length` tokens, and their mean number of tokens.

        Raises `UserError` if there are none.
        """
        sizes = self.sides_of(evenly_spaced(self.lines))
        if not _fits(sizes, length).any():
            fitting = (sizes for _, sizes in self.blocks() if _fits(sizes, length).any())
            sizes = next(fitting, sizes[:0])
        if not len(sizes):
            raise UserError(self.all_long.format(path=self.path, length=length))
        filled, fits = _filled(sizes), _fits(sizes, length)
        if left_out := filled.sum() - fits.sum():
            scale = self.lines / len(sizes)  # 1 unless they are estimated
            counts = round(left_out * scale), round(filled.sum() * scale)
            logger.warning(self.some_long, self.path, "" if scale == 1 else "about ", *counts, length)
        return fits.mean(), sizes[fits].sum(1).mean()

    def mean_size(self, length: int) -> float:
        return self.measured(length)[1]

    def sample(self, rng: np.random.Generator, count: int, length: int) -> tuple[Numbers, Numbers]:
        """Random lines (count,), without replacement within a pass, and the sizes (count,) of their texts together.

        Raises `UserError` if none has a usable length, although some had when the text was opened.
        """
        share, _ = self.measured(length)
        try:
            lines = draw_passes(rng, self.lines, count, lambda lines: _fits(self.sides_of(lines), length), share)
        except LookupError:
            raise UserError(
                f"{self.path}: no line has 2 to {length} tokens any more: the text changed while it was read"
            ) from None
        return lines, self.sides_of(lines).sum(1)

    def all_examples(self, length: int) -> tuple[Numbers, Numbers]:
        """All lines with texts of 2 to `length` tokens in order: lines (n,), sizes of their texts together (n,)."""
        self.measured(length)  # warns of longer texts; raises `UserError` if there are no others
        return super().all_examples(length)

    def number_of_positions(self, length: int) -> int:
        return self.lines

    def examples_at(self, positions: Numbers, length: int) -> tuple[Numbers, Numbers]:
        """The lines of `positions` (n,) with texts of 2 to `length` tokens, and the sizes of their texts together."""
        sizes = self.sides_of(positions)
        fits = _fits(sizes, length)
        return positions[fits], sizes[fits].sum(1)

    def number_of_examples(self, length: int) -> int:
        """Number of lines with texts of 2 to `length` tokens; estimated for more than 262,144 lines."""
        return max(1, round(self.measured(length)[0] * self.lines))

    def sample_of_all(self, rng: np.random.Generator, count: int, length: int) -> tuple[Numbers, Numbers]:
        """At most `count` random lines of `all_examples`, in order, and their sizes."""
        lines = np.unique(self.sample(rng, count, length)[0])
        return lines, self.sides_of(lines).sum(1)


def _filled(sizes: Numbers) -> NDArray[np.bool_]:
    return np.all(sizes > 1, axis=1)


def _fits(sizes: Numbers, length: int) -> NDArray[np.bool_]:
    return np.all((sizes > 1) & (sizes <= length), axis=1)
