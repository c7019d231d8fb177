"""Base of corpora whose examples are lines of a text."""

import logging
from functools import lru_cache

import numpy as np

from fairseq_xl.data.sampling import draw_passes, spread
from fairseq_xl.errors import UserError

logger = logging.getLogger(__name__)


class LineCorpus:
    """Lines that are neither empty nor too long. No list of them is kept: random lines are drawn, and looked at.

    Of more than 262,144 lines, counts and means are estimated from as many (`spread`), less than 0.5 % from the whole
    text's in a text whose parts are alike; of fewer they are exact.

    A subclass has `path`, the prefix of its files, and `lines`, their number, and calls `count`.
    """

    described = ("sentence", "more than")  # for messages

    def sides_of(self, lines):
        """Numbers of tokens of each text of the lines (n,): (n, k)."""
        raise NotImplementedError(f"{type(self).__name__}.sides_of")

    def blocks(self):
        """Yields the first line of each block of the text, and the numbers of tokens as in `sides_of`, (b, k)."""
        raise NotImplementedError(f"{type(self).__name__}.blocks")

    def count(self, none):
        """Counts the lines that are not empty; raises `UserError` with the message `none` if all are."""
        self.sentences = filled_lines(self.lines, self.sides_of, self.blocks)
        if not self.sentences:
            raise UserError(none)
        self.measured = lru_cache(maxsize=4)(self._measure)

    def _measure(self, length):
        """Share of the lines that have texts of 2 to `length` tokens, and their mean number of tokens.

        Raises `UserError` if there are none.
        """
        sizes = self.sides_of(spread(self.lines))
        filled, fits = _filled(sizes), _fits(sizes, length)
        if not fits.any():
            sizes = next((sizes for _, sizes in self.blocks() if _fits(sizes, length).any()), None)
            if sizes is None:
                raise UserError(f"{self.path}: every {' has '.join(self.described)} {length} tokens")
            filled, fits = _filled(sizes), _fits(sizes, length)
        if left_out := filled.sum() - fits.sum():
            scale = self.lines / len(sizes)  # 1 unless they are estimated
            logger.warning(
                "%s: %s%d of %d %s %d tokens and are left out",
                self.path,
                "" if scale == 1 else "about ",
                round(left_out * scale),
                round(filled.sum() * scale),
                "s have ".join(self.described),
                length,
            )
        return fits.mean(), sizes[fits].sum(1).mean()

    def mean_size(self, length):
        """Mean number of tokens of a line, all its texts together."""
        return self.measured(length)[1]

    def sample(self, rng, count, length):
        """Random lines, without replacement within a pass: lines (count,), sizes of all their texts together (count,)."""
        lines = draw_passes(
            rng, self.lines, count, lambda lines: _fits(self.sides_of(lines), length), self.measured(length)[0]
        )
        return lines, self.sides_of(lines).sum(1)

    def all_examples(self, length):
        """All lines with texts of 2 to `length` tokens in order: lines (n,), sizes of all their texts together (n,)."""
        self.measured(length)
        lines, totals = [], []
        for first, sizes in self.blocks():
            fitting = np.flatnonzero(_fits(sizes, length))
            lines.append(first + fitting)
            totals.append(sizes[fitting].sum(1))
        return np.concatenate(lines), np.concatenate(totals)


def filled_lines(lines, sides_of, blocks):
    """Number of the lines without an empty text, estimated as in `LineCorpus`; 0 only if there is none."""
    share = _filled(sides_of(spread(lines))).mean()
    if share or any(_filled(sizes).any() for _, sizes in blocks()):
        return max(1, round(share * lines))
    return 0


def _filled(sizes):
    return (sizes > 1).all(axis=1)


def _fits(sizes, length):
    return ((sizes > 1) & (sizes <= length)).all(axis=1)
