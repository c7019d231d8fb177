"""Negatives of sentence pairs: sentences of the second language that do not translate the first sentence.

Huang et al. 2019, section 3. Mined negatives are in PREFIX.negatives.npz beside the text; random ones are sampled.
Legend: B pairs. X is the first sentence of a pair.
"""

import hashlib
import zlib
from pathlib import Path

import numpy as np

from fairseq_xl.data.arrays import read_arrays
from fairseq_xl.data.randomness import NEGATIVE_SENTENCE, uniforms
from fairseq_xl.errors import UserError

# A negative is sampled from the sentences or segments nearest in length: REACH on either side; in a short text a
# twentieth (SHARE) of all, but at least LEAST_REACH.
REACH = 500
LEAST_REACH, SHARE = 10, 20
TRIES = 8  # random candidates that are tried for a negative


def reach_among(count):
    """How many of `count` sentences or segments, on either side in length, a negative is sampled from."""
    return min(REACH, max(LEAST_REACH, count // SHARE))


class Candidates:
    """The distinct sentences of the second side, and which of them are negatives of which pair.

    A negative of X is a second sentence that is neither a translation of X in any pair nor X itself.

    Args:
        pairs: the `SentencePairs`.
    """

    def __init__(self, pairs):
        self.prefix, self.lines = pairs.prefix, pairs.filled
        (self.first, self.second), self.kinds = _numbered(*(_contents(side, self.lines) for side in pairs.sides))
        self.sentences, places = np.unique(self.second, return_index=True)  # (m,) contents of the candidates
        self.representatives = self.lines[places]  # (m,) a line of each
        self.translations = np.unique(self.first * self.kinds + self.second)

    def are_negatives(self, lines, others):
        """Whether the lines `others` (B, k) of second sentences, -1 for none, are negatives of `lines` (B,): (B, k)."""
        first = self.first[np.searchsorted(self.lines, lines), None]
        contents = self.second[np.searchsorted(self.lines, others).clip(max=len(self.lines) - 1)]
        pairs = first * self.kinds + contents
        places = np.searchsorted(self.translations, pairs).clip(max=len(self.translations) - 1)
        return (others >= 0) & (self.translations[places] != pairs) & (contents != first)

    def number(self, lines):
        """Number, from 0 to m - 1, of the candidate that is the translation in each of the pairs `lines`: (B,)."""
        return np.searchsorted(self.sentences, self.second[np.searchsorted(self.lines, lines)])

    def no_negative(self, line):
        """The `UserError` for a pair without a negative."""
        return UserError(f"{self.prefix}: there is no negative for line {line + 1}, every sentence is its translation")


class Reach:
    """Lengths that a negative may have: so near that of the translation that length does not reveal negatives.

    The range covers the `REACH` nearest shorter lines and as many longer ones.

    Args:
        pairs: the `SentencePairs`.
        longest: maximum length of a side, in tokens; longer pairs do not count.
    """

    def __init__(self, pairs, longest):
        sizes, lengths = np.sort(pairs.sizes[pairs.fitting(longest), 1]), np.arange(longest + 1)
        reach = reach_among(len(sizes))
        self.least = sizes[(np.searchsorted(sizes, lengths) - reach).clip(min=0)]  # (longest + 1,), as `most`
        self.most = sizes[(np.searchsorted(sizes, lengths, side="right") + reach - 1).clip(max=len(sizes) - 1)]

    def places(self, sizes):
        """Range of the sorted sizes (n,) that is in reach of each length: first and end, (longest + 1,) each."""
        return np.searchsorted(sizes, self.least), np.searchsorted(sizes, self.most, side="right")


class RandomNegatives:
    """Random negatives: all lines of the lengths in `Reach` are equally probable.

    Args:
        pairs: the `SentencePairs`.
        longest: maximum length of a side, in tokens; longer pairs neither get negatives nor are negatives.
    """

    def __init__(self, pairs, longest):
        self.pairs = pairs
        fitting, reach = pairs.fitting(longest), Reach(pairs, longest)
        self.lines = fitting[np.argsort(pairs.sizes[fitting, 1], kind="stable")]  # (n,) sorted by length
        self.most = reach.most
        self.first, self.end = reach.places(pairs.sizes[self.lines, 1])  # (longest + 1,) by translation length

    def longest(self, lines):
        """Tokens of the longest negative that each of `lines` may get, (B,)."""
        return self.most[self.pairs.sizes[lines, 1]]

    def choose(self, lines, keys):
        """Lines of negatives (B,) for `lines` (B,) with keys (B,) uint64; `UserError` for a pair without any."""
        candidates, lengths = self.pairs.candidates, self.pairs.sizes[lines, 1]
        first, end = self.first[lengths, None], self.end[lengths, None]
        numbers = uniforms(keys, TRIES, NEGATIVE_SENTENCE)
        drawn = self.lines[first + (numbers * (end - first)).astype(np.int64)]  # (B, TRIES)
        usable = candidates.are_negatives(lines, drawn)
        chosen = drawn[np.arange(len(lines)), usable.argmax(axis=1)]
        for row in np.flatnonzero(~usable.any(axis=1)):  # nearly all lines in reach are translations
            reach = self.lines[: end[row, 0]]
            found = reach[candidates.are_negatives(lines[row : row + 1], reach[None])[0]]
            if not len(found):
                raise candidates.no_negative(lines[row])
            chosen[row] = found[int(numbers[row, 0] * len(found))]
        return chosen


class MinedNegatives:
    """Mined negatives: all those of a pair that fit into `longest` tokens are equally probable.

    Negatives are never truncated: truncation would give them away. A pair without a mined negative that fits gets
    random ones.

    Args:
        pairs: the `SentencePairs`.
        longest: maximum length of a sentence, in tokens.

    Raises `UserError` as `read_negatives` does.
    """

    def __init__(self, pairs, longest):
        negatives = read_negatives(pairs)
        sizes = pairs.sizes[negatives, 1]
        fits = (negatives >= 0) & (sizes <= longest)
        self.lines = np.take_along_axis(negatives, np.argsort(~fits, axis=1, kind="stable"), axis=1)
        self.counts = fits.sum(axis=1)  # (all lines,) number of negatives that fit; they stand first
        self.most = np.where(fits, sizes, 0).max(axis=1)
        self.random = RandomNegatives(pairs, longest)

    def longest(self, lines):
        """Tokens of the longest negative that each of `lines` may get, (B,)."""
        return np.where(self.counts[lines] > 0, self.most[lines], self.random.longest(lines))

    def choose(self, lines, keys):
        """Lines of negatives (B,) for `lines` (B,) with keys (B,) uint64."""
        counts = self.counts[lines]
        chosen = self.lines[lines, (uniforms(keys, 1, NEGATIVE_SENTENCE)[:, 0] * counts).astype(np.int64)]
        without = np.flatnonzero(counts == 0)
        if len(without):
            chosen[without] = self.random.choose(lines[without], keys[without])
        return chosen


def negatives_file(prefix):
    """Path of the mined negatives of the pairs `prefix`."""
    return Path(f"{prefix}.negatives.npz")


def fingerprint(pairs):
    """Checksum of the text of `SentencePairs`; reads all of it, about 1 GB per second."""
    number = zlib.crc32(np.ascontiguousarray(pairs.sizes, dtype=np.int64).tobytes())
    for code in pairs.codes:
        with open(f"{pairs.prefix}.{code}.bin", "rb") as file:
            while block := file.read(1 << 20):
                number = zlib.crc32(block, number)
    return number


def read_negatives(pairs):
    """Reads the mined negatives of `SentencePairs`: (lines, k) int, lines of the second side, -1 for none.

    Raises `UserError` for a missing or damaged file, and for a file that was mined from another text.
    """
    path, again = negatives_file(pairs.prefix), "`fairseq-xl mine-negatives CHECKPOINT DATA` writes it again"
    if not path.is_file():
        raise UserError(f"{path}: no mined negatives; recipes/unicoder/mine.sh trains the model and mines")
    found = read_arrays(path) or {}
    negatives, text = found.get("negatives"), found.get("text")
    kinds = [getattr(each, "dtype", np.dtype(object)).kind for each in (negatives, text)]
    if not set(kinds) <= set("iu") or negatives.ndim != 2 or text.ndim:
        raise UserError(f"{path} is damaged; {again}")
    if len(negatives) != len(pairs.sizes) or text != pairs.fingerprint:
        raise UserError(f"{path} was mined from another text; {again}")
    if not np.isin(negatives, np.append(pairs.filled, -1)).all():
        raise UserError(f"{path} is damaged; {again}")
    return negatives


def _contents(side, lines):
    """Hashes (n,) uint64 of the tokens of sentences."""
    digests = (hashlib.blake2b(side[line].numpy().tobytes(), digest_size=8).digest() for line in lines)
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


def _numbered(*sides):
    """Numbers the contents of both sides, (n,) each, from 0 on: (2, n), and how many distinct ones there are."""
    values, numbers = np.unique(np.concatenate(sides), return_inverse=True)
    return numbers.reshape(len(sides), -1), len(values)
