"""Sentence pairs."""

import logging
from functools import cached_property

import numpy as np

from fairseq_xl.data.indexed import open_text
from fairseq_xl.data.negatives import Candidates, MinedNegatives, RandomNegatives, fingerprint
from fairseq_xl.data.sampling import draw_passes
from fairseq_xl.errors import UserError

logger = logging.getLogger(__name__)


class SentencePairs:
    """Binarised bitext of one language pair, aligned line by line.

    Lines that are empty on either side (document boundaries, holes) are not pairs and are never drawn.

    Args:
        prefix: prefix of the four files, ``DATA/en-de/train.en-de``.
        source, target: codes of the two languages, suffixes of the files.
        symbols: size of the dictionary, which token ids are checked against; None: no check.
    """

    def __init__(self, prefix, source, target, symbols=None):
        self.prefix, self.source, self.target = str(prefix), source, target
        self.sides = [open_text(f"{prefix}.{language}", language, symbols) for language in (source, target)]
        lines = [len(side) for side in self.sides]
        if lines[0] != lines[1]:
            raise UserError(f"{prefix}: {lines[0]} lines of {source!r} but {lines[1]} of {target!r}")
        self.sizes = np.stack([np.asarray(side.sizes) for side in self.sides], axis=1)
        self.filled = np.flatnonzero((self.sizes > 1).all(axis=1))
        self.sentences = len(self.filled)
        self._fits = {}  # longest side -> the lines that fit
        self._drawn = {}  # (longest side, mined or not) -> what negatives are drawn from
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

    @cached_property
    def candidates(self):
        """Which sentences are no negatives of which; takes seconds for each 100,000 pairs."""
        return Candidates(self)

    @cached_property
    def fingerprint(self):
        """A number that tells this text from any other; takes a second for each GB."""
        return fingerprint(self)

    def negatives(self, lines, longest, keys, mined):
        """For each of `lines` a sentence of the second language that is not its translation (U5).

        Args:
            lines: (B,) pairs of at most `longest` tokens a side.
            longest: most tokens of a negative.
            keys: (B,) uint64, what the choice among several is a function of.
            mined: take those that `python -m fairseq_xl.mining` found; False draws any that is about as long.

        Returns: a list of B ended sentences, int64. Raises `UserError` where nothing was mined, or for another text.
        """
        chosen = self._negatives(longest, mined).choose(np.asarray(lines), keys)
        return [self.sides[1][line].numpy() for line in chosen]

    def sizes_with_negatives(self, lines, longest, mined):
        """Sizes (n,) that pairs may come to, both sides together, if a negative takes the second one's place."""
        source, target = self.sizes[lines].T.astype(np.int64)
        return source + np.maximum(target, self._negatives(longest, mined).longest(lines))

    def prepare_negatives(self, longest, mined):
        """Does once, before there are worker processes, what `negatives` needs; raises its `UserError`."""
        if not mined or not self._negatives(longest, mined).counts[self.fitting(longest)].all():
            _ = self.candidates

    def _negatives(self, longest, mined):
        if (longest, mined) not in self._drawn:
            self._drawn[longest, mined] = (MinedNegatives if mined else RandomNegatives)(self, longest)
        return self._drawn[longest, mined]

    def every(self, longest):
        """All pairs with sides of at most `longest` tokens, in order: lines (n,), sizes of both sides (n,)."""
        fitting = self.fitting(longest)
        return fitting, self.sizes[fitting].sum(1)

    def mean_size(self, longest):
        """Mean number of tokens of a pair, both sides together."""
        return self.sizes[self.fitting(longest)].sum(1).mean()

    def draw(self, rng, count, longest):
        """`count` pairs at random, each at most once in a pass: lines (count,), sizes of both sides (count,)."""
        fitting = self.fitting(longest)
        lines = fitting[draw_passes(rng, len(fitting), count)]
        return lines, self.sizes[lines].sum(1)

    def fitting(self, longest):
        """The pairs with sides of at most `longest` tokens, (n,); `UserError` if there is none."""
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
