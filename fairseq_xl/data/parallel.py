"""Sentence pairs of parallel text."""

import logging
from functools import cached_property

import numpy as np

from fairseq_xl.data.indexed import open_text
from fairseq_xl.data.negatives import Candidates, MinedNegatives, RandomNegatives, fingerprint
from fairseq_xl.data.sampling import draw_passes
from fairseq_xl.errors import UserError

logger = logging.getLogger(__name__)


class SentencePairs:
    """Binarized parallel text of one language pair, aligned line by line.

    An example is a line. Lines that are empty on either side (document boundaries, missing translations) are not pairs.

    Args:
        prefix: prefix of the four files, ``DATA/en-de/train.en-de``.
        first, second: codes of the two languages, suffixes of the files.
        symbols: size of the dictionary that token ids are checked against; None: no check.
    """

    def __init__(self, prefix, first, second, symbols=None):
        self.prefix, self.codes = str(prefix), (first, second)
        self.sides = [open_text(f"{prefix}.{code}", code, symbols) for code in self.codes]
        lines = [len(side) for side in self.sides]
        if lines[0] != lines[1]:
            raise UserError(f"{prefix}: {lines[0]} lines of {first!r} but {lines[1]} of {second!r}")
        self.sizes = np.stack([np.asarray(side.sizes) for side in self.sides], axis=1)
        self.filled = np.flatnonzero((self.sizes > 1).all(axis=1))
        self.sentences = len(self.filled)
        self._fits = {}  # length -> the lines whose sides fit
        self._drawn = {}  # (length, mined or not) -> the sampler of negatives
        if not self.sentences:
            raise UserError(f"{prefix}: no pair of two sentences of {first!r} and {second!r}")

    @property
    def name(self):
        """The name of the pair, ``en-de``."""
        return "-".join(self.codes)

    def texts(self, lines, length):
        """The two sentences of each line, which end in ``</s>``: a list of pairs of int64 arrays."""
        return [tuple(side[line].numpy() for side in self.sides) for line in lines]

    def languages(self, lines, length):
        """The two languages of each pair: a list of pairs."""
        return [self.codes] * len(lines)

    @cached_property
    def candidates(self):
        """The `Candidates` for negatives; takes seconds for each 100,000 pairs."""
        return Candidates(self)

    @cached_property
    def fingerprint(self):
        """Checksum of the text; takes a second for each GB."""
        return fingerprint(self)

    def negatives(self, lines, length, keys, mined=False):
        """Samples a sentence of the second language that is not the translation (Huang et al. 2019, section 3).

        Args:
            lines: (B,) pairs of at most `length` tokens per side.
            length: maximum length of a negative, in tokens.
            keys: (B,) uint64 keys of the examples.
            mined: sample from the mined negatives; False: from all sentences of similar length.

        Returns: a list of B sentences, int64 arrays that end in ``</s>``. Raises `UserError` if there are no mined
        negatives, or if they were mined from another text.
        """
        chosen = self._negatives(length, mined).choose(np.asarray(lines), keys)
        return [self.sides[1][line].numpy() for line in chosen]

    def sizes_with_negatives(self, lines, length, mined=False):
        """Tokens (n,) of each pair: of the first sentence, and of the longer of translation and longest negative."""
        first, second = self.sizes[lines].T.astype(np.int64)
        return first + np.maximum(second, self._negatives(length, mined).longest(lines))

    def prepare_negatives(self, length, mined):
        """Reads what `negatives` needs, once and before worker processes start; raises the same `UserError`."""
        if not mined or not self._negatives(length, mined).counts[self.fitting(length)].all():
            _ = self.candidates

    def _negatives(self, length, mined):
        if (length, mined) not in self._drawn:
            self._drawn[length, mined] = (MinedNegatives if mined else RandomNegatives)(self, length)
        return self._drawn[length, mined]

    def all_examples(self, length):
        """All pairs with sides of at most `length` tokens in order: lines (n,), sizes of both sides together (n,)."""
        fitting = self.fitting(length)
        return fitting, self.sizes[fitting].sum(1)

    def mean_size(self, length):
        """Mean number of tokens of a pair, both sides together."""
        return self.sizes[self.fitting(length)].sum(1).mean()

    def sample(self, rng, count, length):
        """Random pairs, without replacement within a pass: lines (count,), sizes of both sides together (count,)."""
        fitting = self.fitting(length)
        lines = fitting[draw_passes(rng, len(fitting), count)]
        return lines, self.sizes[lines].sum(1)

    def fitting(self, length):
        """The pairs with sides of at most `length` tokens, (n,); raises `UserError` if there are none."""
        if length not in self._fits:
            fits = self.filled[(self.sizes[self.filled] <= length).all(axis=1)]
            if not len(fits):
                raise UserError(f"{self.prefix}: every pair has a side of more than {length} tokens")
            if len(fits) < len(self.filled):
                logger.warning(
                    "%s: %d of %d pairs have a side of more than %d tokens and are left out",
                    self.prefix,
                    len(self.filled) - len(fits),
                    len(self.filled),
                    length,
                )
            self._fits[length] = fits
        return self._fits[length]
