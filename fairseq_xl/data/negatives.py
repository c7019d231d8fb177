"""Negatives of sentence pairs: sentences of the second language that are no translation of the first one (U5).

Mined ones are kept beside the pairs, in PREFIX.negatives.npz; random ones are drawn. B pairs.
"""

import hashlib
import zlib
from pathlib import Path

import numpy as np

from fairseq_xl.data.arrays import read_arrays
from fairseq_xl.data.randomness import uniforms
from fairseq_xl.errors import UserError

REACH = 500  # lines on either side, in the order of lengths, that negatives are taken from
LEAST_REACH, SHARE = 10, 20  # of a short text a twentieth, but no fewer lines than this
TRIES = 8  # random lines among which the first negative is looked for

_CHOICE = 7  # purpose of the random numbers that choose a negative


class Candidates:
    """The different sentences of the second side, and which of them are no negative of which pair.

    A negative is the second sentence of some pair that is neither a translation of X in any pair, nor X itself.

    Args:
        pairs: the `SentencePairs`.
    """

    def __init__(self, pairs):
        self.prefix, self.lines = pairs.prefix, pairs.filled
        (self.source, self.target), self.kinds = _numbered(*(_contents(side, self.lines) for side in pairs.sides))
        self.sentences, first = np.unique(self.target, return_index=True)  # (m,) contents of the candidates
        self.representatives = self.lines[first]  # (m,) a line of each
        self.translations = np.unique(self.source * self.kinds + self.target)

    def are_negatives(self, lines, others):
        """Pairs `lines` (B,) and lines of second sentences `others` (B, k), -1 for none -> (B, k) bool."""
        source = self.source[np.searchsorted(self.lines, lines), None]
        contents = self.target[np.searchsorted(self.lines, others).clip(max=len(self.lines) - 1)]
        pairs = source * self.kinds + contents
        places = np.searchsorted(self.translations, pairs).clip(max=len(self.translations) - 1)
        return (others >= 0) & (self.translations[places] != pairs) & (contents != source)

    def number(self, lines):
        """Which candidate the translation in each of the pairs `lines` (B,) is: (B,), from 0 to m - 1."""
        return np.searchsorted(self.sentences, self.target[np.searchsorted(self.lines, lines)])

    def no_negative(self, line):
        """The `UserError` for a pair of which every sentence is a translation."""
        return UserError(f"{self.prefix}: there is no negative for line {line + 1}, every sentence is its translation")


class Reach:
    """Lengths that a negative may have: about that of the translation, so that length tells nothing (U5).

    Those of the `REACH` lines before and behind all of the translation's length, in the order of lengths.

    Args:
        pairs: the `SentencePairs`.
        longest: most tokens of a side; longer pairs do not count.
    """

    def __init__(self, pairs, longest):
        sizes, lengths = np.sort(pairs.sizes[pairs.fitting(longest), 1]), np.arange(longest + 1)
        reach = min(REACH, max(LEAST_REACH, len(sizes) // SHARE))
        self.least = sizes[(np.searchsorted(sizes, lengths) - reach).clip(min=0)]  # (longest + 1,), as `most`
        self.most = sizes[(np.searchsorted(sizes, lengths, side="right") + reach - 1).clip(max=len(sizes) - 1)]

    def places(self, sizes):
        """Sorted sizes (n,) -> which of them are in reach of each length: first and end, (longest + 1,) each."""
        return np.searchsorted(sizes, self.least), np.searchsorted(sizes, self.most, side="right")


class RandomNegatives:
    """Sentences that are about as long as the translation, so that length tells nothing, and batches keep their limit.

    Each line of the lengths in `Reach` is as probable as any other.

    Args:
        pairs: the `SentencePairs`.
        longest: most tokens of a side; longer pairs are neither asked for nor drawn.
    """

    def __init__(self, pairs, longest):
        self.pairs = pairs
        fitting, reach = pairs.fitting(longest), Reach(pairs, longest)
        self.lines = fitting[np.argsort(pairs.sizes[fitting, 1], kind="stable")]  # (n,) in the order of lengths
        self.most = reach.most
        self.first, self.end = reach.places(pairs.sizes[self.lines, 1])  # (longest + 1,) by the translation's length

    def longest(self, lines):
        """Tokens of the longest negative that may be drawn for each of `lines`, (B,)."""
        return self.most[self.pairs.sizes[lines, 1]]

    def choose(self, lines, keys):
        """Pairs `lines` (B,), keys (B,) uint64 -> lines of negatives (B,); `UserError` for a pair without one."""
        candidates, lengths = self.pairs.candidates, self.pairs.sizes[lines, 1]
        first, end = self.first[lengths, None], self.end[lengths, None]
        numbers = uniforms(keys, TRIES, _CHOICE)
        drawn = self.lines[first + (numbers * (end - first)).astype(np.int64)]  # (B, TRIES)
        usable = candidates.are_negatives(lines, drawn)
        chosen = drawn[np.arange(len(lines)), usable.argmax(axis=1)]
        for row in np.flatnonzero(~usable.any(axis=1)):  # nearly all that is in reach is a translation
            reach = self.lines[: end[row, 0]]
            found = reach[candidates.are_negatives(lines[row : row + 1], reach[None])[0]]
            if not len(found):
                raise candidates.no_negative(lines[row])
            chosen[row] = found[int(numbers[row, 0] * len(found))]
        return chosen


class MinedNegatives:
    """What `python -m fairseq_xl.mining` found; of several for a pair, each that fits is as probable as any other.

    None is cut, which a model could tell from the translations, none of which is; a pair of whose negatives none fits
    has random ones.

    Args:
        pairs: the `SentencePairs`.
        longest: most tokens of a sentence.

    Raises `UserError` as `read_negatives` does.
    """

    def __init__(self, pairs, longest):
        negatives = read_negatives(pairs)
        sizes = pairs.sizes[negatives, 1]
        fits = (negatives >= 0) & (sizes <= longest)
        self.lines = np.take_along_axis(negatives, np.argsort(~fits, axis=1, kind="stable"), axis=1)
        self.counts = fits.sum(axis=1)  # (all lines,): so many, in front, fit
        self.most = np.where(fits, sizes, 0).max(axis=1)
        self.random = RandomNegatives(pairs, longest)

    def longest(self, lines):
        """Tokens of the longest negative that may be drawn for each of `lines`, (B,)."""
        return np.where(self.counts[lines] > 0, self.most[lines], self.random.longest(lines))

    def choose(self, lines, keys):
        """Pairs `lines` (B,), keys (B,) uint64 -> lines of negatives (B,)."""
        counts = self.counts[lines]
        chosen = self.lines[lines, (uniforms(keys, 1, _CHOICE)[:, 0] * counts).astype(np.int64)]
        without = np.flatnonzero(counts == 0)
        if len(without):
            chosen[without] = self.random.choose(lines[without], keys[without])
        return chosen


def negatives_file(prefix):
    """Where the negatives of the pairs `prefix` are."""
    return Path(f"{prefix}.negatives.npz")


def fingerprint(pairs):
    """A number that tells the text of `SentencePairs` from any other; reads all of it, about 1 GB a second."""
    number = zlib.crc32(np.ascontiguousarray(pairs.sizes, dtype=np.int64).tobytes())
    for code in (pairs.source, pairs.target):
        with open(f"{pairs.prefix}.{code}.bin", "rb") as file:
            while block := file.read(1 << 20):
                number = zlib.crc32(block, number)
    return number


def read_negatives(pairs):
    """The mined negatives of `SentencePairs` -> (lines, k) int, lines of the second side; -1: none.

    Raises `UserError` for a missing or damaged file, and for that of another text.
    """
    path, anew = negatives_file(pairs.prefix), "`python -m fairseq_xl.mining CHECKPOINT DATA` writes it anew"
    if not path.is_file():
        raise UserError(f"{path}: no mined negatives; recipes/unicoder/mine.sh trains what finds them, and writes them")
    found = read_arrays(path) or {}
    negatives, text = found.get("negatives"), found.get("text")
    kinds = [getattr(each, "dtype", np.dtype(object)).kind for each in (negatives, text)]
    if not set(kinds) <= set("iu") or negatives.ndim != 2 or text.ndim:
        raise UserError(f"{path} is damaged; {anew}")
    if len(negatives) != len(pairs.sizes) or text != pairs.fingerprint:
        raise UserError(f"{path} was mined from another text; {anew}")
    if not np.isin(negatives, np.append(pairs.filled, -1)).all():
        raise UserError(f"{path} is damaged; {anew}")
    return negatives


def _contents(side, lines):
    """(n,) uint64 that tell sentences apart by their tokens."""
    digests = (hashlib.blake2b(side[line].numpy().tobytes(), digest_size=8).digest() for line in lines)
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


def _numbered(*sides):
    """Contents of both sides, (n,) each -> the same as numbers from 0 on, (2, n), and how many there are."""
    values, numbers = np.unique(np.concatenate(sides), return_inverse=True)
    return numbers.reshape(len(sides), -1), len(values)
