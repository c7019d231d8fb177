"""Negatives of sentence pairs: sentences of the second language that do not translate the first sentence.

Huang et al. 2019, section 3. Mined negatives are in PREFIX.negatives.npy beside the text; random ones are sampled.
Legend: B pairs. X is the first sentence of a pair.
"""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairseq_xl.data import Numbers
from fairseq_xl.data.noise.randomness import NEGATIVE_SENTENCE, mix, uniforms
from fairseq_xl.data.store.binarized_text import BLOCK_TOKENS, Text
from fairseq_xl.data.store.cached_tables import IN_MEMORY_LINES, table
from fairseq_xl.data.store.manifest import check_fingerprint, read_note, stored_fingerprint
from fairseq_xl.errors import UserError
from fairseq_xl.io.arrays import open_matrix
from fairseq_xl.io.fingerprints import fingerprint

if TYPE_CHECKING:
    from fairseq_xl.data.corpora.sentence_pairs import SentencePairs

# A negative is sampled from the sentences nearest in length: REACH on either side; in a short text a
# twentieth (SHARE) of all, but at least LEAST_REACH.
REACH = 500
LEAST_REACH, SHARE = 10, 20
TRIES = 8  # random candidates that are tried for a negative
MORE_TRIES = 1 << 16  # candidates that are tried if all of these are translations
AGAIN = "`fairseq-xl search negatives CHECKPOINT DATA` writes it again"
NUMBER = np.uint64(40)  # bits of the id of a text in `length_codes`
POSITION = np.uint64(0xD1342543DE82EF95)  # an odd factor of positions in a sentence


def length_codes(sizes: ArrayLike, text_ids: ArrayLike) -> Numbers:
    """Codes (n,) uint64 that sort texts by length: size (n,) in the high bits, the text's id in the low 40."""
    return np.asarray(sizes).astype(np.uint64) << NUMBER | np.asarray(text_ids).astype(np.uint64)


class LengthRange:
    """The range of lengths of the negatives for each length of a translation.

    It covers the `REACH` nearest shorter texts and as many longer ones: narrow, so that length reveals no negative.

    Args:
        corpus: has the texts sorted: its `sorted_by_length(longest)` is an array (n,) of `length_codes`.
        longest: maximum length of a text, in tokens.
    """

    def __init__(self, corpus: "SentencePairs", longest: int):
        self.texts = corpus.sorted_by_length(longest)
        count, bounds = len(self.texts), length_codes(np.arange(longest + 2), 0)
        bounds = np.searchsorted(self.texts, bounds)  # (longest + 2,) index of the first text of each length
        reach = min(REACH, max(LEAST_REACH, count // SHARE))
        least, most = (bounds[:-1] - reach).clip(min=0), (bounds[1:] + reach - 1).clip(max=count - 1)
        self.least, self.most = ((self.texts[indices] >> NUMBER).astype(np.int64) for indices in (least, most))
        self.first, self.end = bounds[self.least], bounds[self.most + 1]  # (longest + 1,), as `least` and `most`

    def draw(self, sizes: Numbers, draws: NDArray[np.float64]) -> Numbers:
        """Samples texts (B, k) in the ranges of the sizes (B,) with uniform numbers `draws` (B, k)."""
        first, end = self.first[sizes, None], self.end[sizes, None]
        return self.text_ids(first + (draws * (end - first)).astype(np.int64))

    def text_ids(self, indices: Numbers) -> Numbers:
        """Returns the ids of the texts at indices of the order by length."""
        return (self.texts[indices] & ((np.uint64(1) << NUMBER) - np.uint64(1))).astype(np.int64)


class Candidates:
    """The sentences of the second side, as candidates for negatives of pairs.

    A negative of X is a second sentence that is neither a translation of X in any pair nor X itself. Sentences are
    compared by hashes of 64 bits; the hashes of all pairs are a table (`fairseq_xl.data.store.cached_tables`).
    """

    def __init__(self, pairs: "SentencePairs"):
        self.prefix, self.sides, self.pairs = pairs.prefix, pairs.sides, pairs
        self.translations = table(f"{pairs.prefix}.translations.table", pairs.sides, self._all, None)

    def _all(self) -> Iterator[Numbers]:
        """Yields hashes (b,) of all pairs of two sentences."""
        for first, sizes in self.pairs.blocks():
            filled = (sizes > 1).all(axis=1)
            yield _hashes_of_pairs(*(hashes_of_block(side, first, first + len(sizes))[filled] for side in self.sides))

    def are_negatives(self, lines: Numbers, candidates: Numbers) -> NDArray[np.bool_]:
        """Tells which second sentences in lines (B, k), -1 for none, are negatives of `lines` (B,): (B, k) bool."""
        first, contents = hashes_at(self.sides[0], lines)[:, None], hashes_at(self.sides[1], candidates)
        pairs = _hashes_of_pairs(first, contents)
        indices = np.searchsorted(self.translations, pairs).clip(max=len(self.translations) - 1)
        return (candidates >= 0) & (self.translations[indices] != pairs) & (contents != first)

    def no_negative(self, line: int) -> UserError:
        """The `UserError` for a pair without a negative."""
        return UserError(f"{self.prefix}: there is no negative for line {line + 1}, every sentence is its translation")


class RandomNegatives:
    """Random negatives: all lines of the lengths in `LengthRange` are equally probable.

    Pairs with a side of more than `longest` tokens neither get negatives nor are negatives.
    """

    def __init__(self, pairs: "SentencePairs", longest: int):
        self.pairs, self.sizes, self.range = pairs, pairs.sides[1].sizes, LengthRange(pairs, longest)

    def longest(self, lines: Numbers) -> Numbers:
        """Tokens of the longest negative that each of `lines` may get, (B,)."""
        return self.range.most[self.sizes[lines]]

    def choose(self, lines: Numbers, keys: Numbers) -> Numbers:
        """Lines of negatives (B,) for `lines` (B,) with keys (B,) uint64; `UserError` for a pair without any."""
        candidates, lengths = self.pairs.candidates, self.sizes[lines]
        draws = uniforms(keys, TRIES, NEGATIVE_SENTENCE)
        proposals = self.range.draw(lengths, draws)
        negatives, pending = proposals[:, 0].copy(), np.arange(len(lines))  # `pending`: rows without a negative so far
        for tried in proposals.T:  # for nearly all pairs the first candidate is kept
            negatives[pending] = tried[pending]
            pending = pending[~candidates.are_negatives(lines[pending], tried[pending, None])[:, 0]]
        for row in pending:  # nearly all lines in the range are translations
            indices = np.arange(self.range.end[lengths[row]])
            if len(indices) > MORE_TRIES:
                extra = uniforms(keys[row : row + 1], MORE_TRIES, NEGATIVE_SENTENCE)[0]
                indices = (extra * len(indices)).astype(np.int64)
            candidate_lines = self.range.text_ids(indices)
            usable = candidate_lines[candidates.are_negatives(lines[row : row + 1], candidate_lines[None])[0]]
            if not len(usable):
                raise candidates.no_negative(lines[row])
            negatives[row] = usable[int(draws[row, 0] * len(usable))]
        return negatives


class MinedNegatives:
    """Mined negatives: all those of a pair that fit into `longest` tokens are equally probable.

    Negatives are never truncated: that would give them away. A pair without one that fits gets random negatives. Raises
    `UserError` as `read_negatives` does.
    """

    def __init__(self, pairs: "SentencePairs", longest: int):
        self.pairs, self.negatives, self.length = pairs, read_negatives(pairs), longest

    @cached_property
    def random(self) -> RandomNegatives:
        """The `RandomNegatives` of pairs without a mined one that fits."""
        return RandomNegatives(self.pairs, self.length)

    def fitting(self, lines: Numbers) -> tuple[Numbers, Numbers]:
        """Negatives of lines (B,), fitting ones first, and their sizes, 0 for those that do not fit: (B, k) each."""
        negatives = np.asarray(self.negatives[lines])
        _check_lines(negatives, self.pairs)
        sizes = self.pairs.sides[1].sizes[negatives]
        sizes = np.where((negatives >= 0) & (sizes <= self.length), sizes, 0)
        order = np.argsort(sizes == 0, axis=1, kind="stable")
        return np.take_along_axis(negatives, order, axis=1), np.take_along_axis(sizes, order, axis=1)

    def longest(self, lines: Numbers) -> Numbers:
        """Tokens of the longest negative that each of `lines` may get, (B,)."""
        most = self.fitting(lines)[1].max(axis=1).astype(np.int64)
        without = np.flatnonzero(most == 0)
        if len(without):
            most[without] = self.random.longest(np.asarray(lines)[without])
        return most

    def choose(self, lines: Numbers, keys: Numbers) -> Numbers:
        """Lines of negatives (B,) for `lines` (B,) with keys (B,) uint64."""
        negatives, sizes = self.fitting(lines)
        counts = (sizes > 0).sum(axis=1)
        columns = (uniforms(keys, 1, NEGATIVE_SENTENCE)[:, 0] * counts).astype(np.int64)
        selected = negatives[np.arange(len(lines)), columns].astype(np.int64)
        without = np.flatnonzero(counts == 0)
        if len(without):
            selected[without] = self.random.choose(lines[without], keys[without])
        return selected


def negatives_file(prefix: str | Path) -> Path:
    """Path of the mined negatives of the pairs `prefix`."""
    return Path(f"{prefix}.negatives.npy")


def read_negatives(pairs: "SentencePairs") -> Numbers:
    """Reads the mined negatives of `SentencePairs`: (lines, k) int, lines of the second side, -1 for none.

    Those of a long text are memory-mapped. Raises `UserError` for a missing, damaged or changed file, or another text.
    """
    path = negatives_file(pairs.prefix)
    if not path.is_file():
        raise UserError(f"{path}: no mined negatives; recipes/unicoder/mine.sh trains the model and mines")
    location = path.parent.parent, f"{path.parent.name}/{path.name}"
    check_fingerprint(*location)
    note = read_note(path.with_suffix(".json"))
    if note is None:
        raise UserError(f"{path.with_suffix('.json')} is missing or damaged; {AGAIN}")
    try:
        negatives = open_matrix(str(path), "whole numbers")
    except UserError as error:
        raise UserError(f"{error}; {AGAIN}") from None
    made_with = note.get("made_with")
    if len(negatives) != pairs.lines or not isinstance(made_with, dict) or made_with.get("text") != pairs.fingerprint:
        raise UserError(f"{path} was mined from another text; {AGAIN}")
    if len(negatives) <= IN_MEMORY_LINES:
        negatives = np.array(negatives)
        if (stored_fingerprint(*location) or {}).get("blocks") != fingerprint(path)["blocks"]:
            raise UserError(f"{path} is damaged; {AGAIN}")
        _check_lines(negatives, pairs)
    return negatives


def _check_lines(negatives: Numbers, pairs: "SentencePairs") -> None:
    """Raises `UserError` unless mined negatives are lines of pairs, or -1."""
    lines = negatives.reshape(-1)
    in_text = lines.min(initial=-1) >= -1 and lines.max(initial=-1) < pairs.lines
    if not in_text or not ((pairs.sides_of(lines) > 1).all(axis=1) | (lines < 0)).all():
        raise UserError(f"{negatives_file(pairs.prefix)} is damaged; {AGAIN}")


def hashes(tokens: Numbers, sizes: Numbers) -> Numbers:
    """Hashes of sentences, whose tokens (t,) follow each other, of sizes (n,) from 1 on: (n,) uint64.

    The sum of a hash of each token and its position.
    """
    begins = np.cumsum(sizes) - sizes
    positions = np.arange(len(tokens)) - np.repeat(begins, sizes)
    mixed = mix(tokens.astype(np.uint64) + (positions + 1).astype(np.uint64) * POSITION)
    return mix(np.add.reduceat(mixed, begins))


def _hashes_of_pairs(first: Numbers, second: Numbers) -> Numbers:
    """Hashes of pairs from the hashes of their sentences."""
    return mix(mix(first) + second)


def hashes_at(side: Text, lines: Numbers) -> Numbers:
    """Hashes of the sentences in lines, an array of any shape; negative indices count from the end."""
    if not np.size(lines):
        return np.zeros(np.shape(lines), dtype=np.uint64)
    lines, indices = np.unique(lines, return_inverse=True)
    items = [side.read(*side.bounds(line)) for line in (lines % len(side)).tolist()]
    return hashes(np.concatenate(items), np.array([len(item) for item in items]))[indices]


def hashes_of_block(side: Text, first: int, end: int) -> Numbers:
    """Hashes (n,) of the lines `first` to `end` of a text."""
    sizes, begin = side.load_sizes(first, end - first), side.bounds(first)[0]
    if side.bounds(end - 1)[1] != begin + sizes.sum() or sizes.min() < 1:
        raise UserError(f"{side.prefix}.idx is damaged: lines {first + 1} to {end} do not follow each other")
    runs = np.flatnonzero(np.diff(np.cumsum(sizes) // BLOCK_TOKENS, prepend=0))
    parts = []
    for run in np.split(sizes, runs):  # about BLOCK_TOKENS each
        if len(run):
            parts.append(hashes(side.load(begin, begin + run.sum()), run))
            begin += run.sum()
    return np.concatenate(parts)
