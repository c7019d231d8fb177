"""Sentence pairs."""

import logging

import numpy as np

from fairseq_xl.data.indexed import open_text
from fairseq_xl.data.sampling import draw_passes
from fairseq_xl.errors import UserError

logger = logging.getLogger(__name__)


class SentencePairs:
    """Binarised bitext of one language pair, aligned line by line.

    Lines that are empty on either side (document boundaries, holes) are not pairs and are never drawn.

    Args:
        prefix: prefix of the four files, ``DATA/en-de/train.en-de``.
        source, target: codes of the two languages, suffixes of the files.
    """

    def __init__(self, prefix, source, target):
        self.prefix, self.source, self.target = str(prefix), source, target
        self.sides = [open_text(f"{prefix}.{language}", language) for language in (source, target)]
        lines = [len(side) for side in self.sides]
        if lines[0] != lines[1]:
            raise UserError(f"{prefix}: {lines[0]} lines of {source!r} but {lines[1]} of {target!r}")
        self.sizes = np.stack([np.asarray(side.sizes) for side in self.sides], axis=1)
        self.filled = np.flatnonzero((self.sizes > 1).all(axis=1))
        self.sentences = len(self.filled)
        self._fits = {}  # longest side -> the lines that fit
        if not self.sentences:
            raise UserError(f"{prefix}: no pair of two sentences of {source!r} and {target!r}")

    @property
    def name(self):
        """The pair's name, ``en-de``."""
        return f"{self.source}-{self.target}"

    def texts(self, lines, longest):
        """The two sentences of each of `lines` as int64 arrays, each ended by ``</s>``: a list of pairs."""
        return [tuple(side[line].numpy() for side in self.sides) for line in lines]

    def languages(self, lines, longest):
        """The two languages of each pair: a list of pairs."""
        return [(self.source, self.target)] * len(lines)

    def every(self, longest):
        """All pairs with sides of at most `longest` tokens, in order: lines (n,), sizes of both sides (n,)."""
        fitting = self._fitting(longest)
        return fitting, self.sizes[fitting].sum(1)

    def mean_size(self, longest):
        """Mean number of tokens of a pair, both sides together."""
        return self.sizes[self._fitting(longest)].sum(1).mean()

    def draw(self, rng, count, longest):
        """`count` pairs at random, each at most once in a pass: lines (count,), sizes of both sides (count,)."""
        fitting = self._fitting(longest)
        lines = fitting[draw_passes(rng, len(fitting), count)]
        return lines, self.sizes[lines].sum(1)

    def _fitting(self, longest):
        if longest not in self._fits:
            fits = self.filled[(self.sizes[self.filled] <= longest).all(axis=1)]
            if not len(fits):
                raise UserError(f"{self.prefix}: every pair has a side of more than {longest} tokens")
            if len(fits) < len(self.filled):
                logger.warning(
                    "%s: %d of %d pairs have a side of more than %d tokens and are left out",
                    self.prefix,
                    len(self.filled) - len(fits),
                    len(self.filled),
                    longest,
                )
            self._fits[longest] = fits
        return self._fits[longest]
