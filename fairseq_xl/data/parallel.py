"""Sentence pairs."""

import logging

import numpy as np
import torch

from fairseq_xl.data.indexed import open_text
from fairseq_xl.data.negatives import read_negatives
from fairseq_xl.data.randomness import uniforms
from fairseq_xl.data.sampling import draw_passes
from fairseq_xl.data.text import cut
from fairseq_xl.errors import UserError

logger = logging.getLogger(__name__)

_CHOICE = 7  # purpose of the random numbers that choose a negative


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
        self._mined = None  # (lines, k), read when it is needed
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

    def negatives(self, lines, longest, keys, mined):
        """For each of `lines` a sentence of the second language that is not its translation (U5).

        Args:
            lines: (B,) the pairs.
            longest: most tokens of a sentence; a longer mined one is cut.
            keys: (B,) uint64, what the choice among several is a function of.
            mined: take those that `python -m fairseq_xl.mining` found; False draws uniformly.

        Returns: a list of B ended sentences, int64. Raises `UserError` where nothing was mined, or for another text.
        """
        numbers = uniforms(keys, 1, _CHOICE)[:, 0]
        if mined:
            self._mined = read_negatives(self.prefix, self.sizes) if self._mined is None else self._mined
            found = [self._mined[line][self._mined[line] >= 0] for line in lines]
            chosen = [options[int(number * len(options))] for options, number in zip(found, numbers)]
        else:
            chosen = [self._another(line, number, longest) for line, number in zip(lines, numbers)]
        return [cut(self.sides[1][line].numpy(), longest) for line in chosen]

    def _another(self, line, number, longest):
        """The first line from a drawn one on whose sentences are others; never a sentence that is also the source."""
        fitting, (source, target) = self._fitting(longest), (side[line] for side in self.sides)
        first = int(number * len(fitting))
        for step in range(len(fitting)):
            other = fitting[(first + step) % len(fitting)]
            if not (
                torch.equal(self.sides[0][other], source)
                or torch.equal(self.sides[1][other], target)
                or torch.equal(self.sides[1][other], source)
            ):
                return other
        raise UserError(f"{self.prefix}: there is no negative for line {line + 1}, every pair has one of its sentences")

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
