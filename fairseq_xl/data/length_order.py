"""Bitext sorted by length in files, and the batches of an epoch, of which no list is kept.

Legend: n pairs, k buckets (the pairs of a direction with equal lengths), B examples of a batch.
"""

import logging
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairseq_xl.data.corpus import Numbers
from fairseq_xl.data.parallel import SentencePairs
from fairseq_xl.data.randomness import mix
from fairseq_xl.data.sampling import permute_each
from fairseq_xl.data.tables import table
from fairseq_xl.errors import UserError

logger = logging.getLogger(__name__)

LINE_BITS, LENGTH_BITS = 34, 15  # bits of a line and of each length in a row of the order
MOST_LINES = 1 << LINE_BITS
LONGEST = (1 << LENGTH_BITS) - 1  # stands for this length and all above
BLOCK_ROWS = 1 << 18  # rows of the order that are read at a time
BLOCK_RUNS = 1 << 12  # buckets that are numbers of Python at a time
SIDE_BITS = 16  # bits of a side's length where both are one number; a framed source has up to 2 tokens more


class LengthOrder:
    """The pairs of bitext sorted by the length of the target, then of the source, then by line: two table files.

    Lines that are empty on either side are left out. The files take 8 bytes per pair and 24 bytes per bucket, and are
    mapped.

    Args:
        pairs: the bitext.
        swapped: whether its second language is the source.

    Raises `UserError` for bitext of more than `MOST_LINES` lines.
    """

    version = 1  # of the tables

    def __init__(self, pairs: SentencePairs, swapped: bool):
        if pairs.lines > MOST_LINES:
            raise UserError(
                f"{pairs.prefix}: {pairs.lines} lines, expected at most {MOST_LINES}: divide it into shards"
            )
        self.bucket_sizes, self.swapped = pairs, swapped
        codes = pairs.codes[::-1] if swapped else pairs.codes
        self.name = f"{pairs.prefix}.{'-'.join(codes)}"

    def __reduce__(self) -> Any:
        return LengthOrder, (self.bucket_sizes, self.swapped)

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def rows(self) -> Numbers:
        """Length of the target, of the source, and line, in the bits of one number: (n,) uint64, sorted."""

        def blocks() -> Iterator[Numbers]:
            for first, sizes in self.bucket_sizes.blocks():
                filled = np.flatnonzero((sizes > 1).all(axis=1))
                source, target = np.minimum(sizes[filled], LONGEST).T[:: -1 if self.swapped else 1].astype(np.uint64)
                lengths = target << np.uint64(LENGTH_BITS) | source
                yield lengths << np.uint64(LINE_BITS) | (first + filled).astype(np.uint64)

        return self._table("order", blocks, None)

    @cached_property
    def buckets(self) -> Numbers:
        """Length of the target, of the source, and index of the first of these pairs in the order: (k, 3)."""

        rows = self.rows  # not in `blocks`: one table is written at a time

        def blocks() -> Iterator[Numbers]:
            before = -1
            for first in range(0, len(rows), BLOCK_ROWS):
                lengths = (rows[first : first + BLOCK_ROWS] >> np.uint64(LINE_BITS)).astype(np.int64)
                begins = np.flatnonzero(np.diff(lengths, prepend=before))
                found = lengths[begins]
                yield np.stack((found >> LENGTH_BITS, found & LONGEST, first + begins), axis=1)
                before = lengths[-1]

        return self._table("buckets", blocks, 3)

    def _table(self, name: str, blocks: Any, columns: int | None) -> Numbers:
        pairs, path = self.bucket_sizes, f"{self.name}.{name}.table"
        return table(path, pairs.table_prefixes, pairs.lines, blocks, columns, self.version, always_file=True)

    def lines(self, indices: Numbers) -> Numbers:
        """The lines (n,) at indices of the order."""
        return (self.rows[indices] & np.uint64(MOST_LINES - 1)).astype(np.int64)


class SortedBatches(Sequence[Numbers]):
    """The batches of an epoch over several directions, sorted by length; each is computed when it is read.

    Examples of equal lengths are in random order. Batches have the sizes that fairseq's `batch_by_size` gives them.
    An example is the offset of its direction plus its line. Memory: 40 to 100 bytes for each bucket of each direction,
    and up to 140 while the object is made.

    If an epoch reads a direction a fractional number of times (--upsample-primary 2.4), each bucket contributes its
    share of the fraction, rounded at random, so that all pairs are equally probable.

    Args:
        directions: `Direction`s with an `order`.
        max_positions: longest source, with ``<s>`` and tag, and longest target; longer pairs are left out.
        max_tokens, max_sentences: limits of a batch, as in fairseq; at least one is given.
        seed, epoch: of the random numbers.

    Attributes:
        epoch: as above.
        skipped: number of examples that are too long.
        longest: tokens of the longest side of an example, those too long included.
    """

    def __init__(
        self,
        directions: Sequence[Any],
        max_positions: tuple[int, int],
        max_tokens: int | None,
        max_sentences: int | None,
        seed: int,
        epoch: int,
    ):
        self.epoch = epoch
        self.orders = [direction.order for direction in directions]
        offsets = np.cumsum([0] + [len(direction.lines) for direction in directions])
        rng = np.random.default_rng((seed, epoch))
        self.longest = self.skipped = 0
        longest = min(max_positions[1], LONGEST - 1), min(max_positions[0], LONGEST - 1)
        found = [self._buckets(direction, number, longest, rng) for number, direction in enumerate(directions)]
        lengths, first, pairs, examples, which = (np.concatenate(column) for column in zip(*found, strict=True))
        del found
        order = np.argsort(lengths, kind="stable")
        self.first, self.bucket_sizes, self.direction, lengths = (
            first[order],
            pairs[order],
            which[order],
            lengths[order],
        )
        self.offsets = offsets
        self.begins = np.concatenate(([0], np.cumsum(examples[order])))  # of buckets, in examples of the epoch
        del first, pairs, examples, which, order
        # buckets of several directions with the same lengths are one group
        heads = np.flatnonzero(np.diff(lengths, prepend=lengths[:1] + np.uint32(1)))
        self.groups = self.begins[np.append(heads, len(lengths))]  # of groups, in examples of the epoch
        self.keys = rng.integers(2**64, size=2, dtype=np.uint64)  # of groups and of buckets
        longer = np.maximum(lengths[heads] >> SIDE_BITS, lengths[heads] & (1 << SIDE_BITS) - 1)
        self.lengths = lengths[heads]  # (g,) target and source length of each group, packed into one number
        self.parts = batch_buckets(_blockwise(longer), _blockwise(np.diff(self.groups)), max_tokens, max_sentences)
        self.numbers = np.concatenate(([0], np.cumsum(self.parts[:, 2])))  # number of the first batch of each part

    def _buckets(
        self, direction: Any, number: int, longest: tuple[int, int], rng: np.random.Generator
    ) -> tuple[np.ndarray, ...]:
        """The buckets of a direction that are not longer than `longest`, of target and framed source.

        Counts the others. Returns, (k,) each: both lengths in the bits of one number, first index, pairs, examples, and
        number of the direction.
        """
        target, source, first = np.asarray(direction.order.buckets).T
        source = source + (1 + (direction.tag is not None))
        pairs, examples = _examples(direction, first, rng)
        self.longest = max(self.longest, int(target.max(initial=0)), int(source.max(initial=0)))
        fits = (target <= longest[0]) & (source <= longest[1])
        self.skipped += int(examples[~fits].sum())
        kept = np.flatnonzero(fits & (examples > 0))
        lengths = (target[kept] << SIDE_BITS | source[kept]).astype(np.uint32)
        return lengths, first[kept], pairs[kept], examples[kept], np.full(len(kept), number, np.int32)

    def __len__(self) -> int:
        return int(self.numbers[-1])

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return [self[each] for each in range(len(self))[number]]
        number = range(len(self))[number]  # not negative; or an `IndexError`
        (begin,), (size,) = self._ranges(np.array([number]))
        return self._examples_at(np.arange(begin, begin + size))

    def _ranges(self, numbers: Numbers) -> tuple[Numbers, Numbers]:
        """First position (n,) in the epoch's order of lengths and number of examples (n,) of each batch."""
        part = np.searchsorted(self.numbers, numbers, side="right") - 1
        begins, sizes, _ = self.parts[part].T
        return begins + (numbers - self.numbers[part]) * sizes, sizes

    def token_counts(self, numbers: Numbers) -> tuple[Numbers, Numbers]:
        """Numbers of tokens of batches (n,) without and with padding, of both sides: (n,) each. Reads no text."""
        begins, sizes = self._ranges(numbers)
        first = np.searchsorted(self.groups, begins, side="right") - 1
        counts = np.searchsorted(self.groups, begins + sizes, side="left") - first  # groups of each batch
        heads = np.cumsum(counts) - counts
        group = np.repeat(first - heads, counts) + np.arange(counts.sum())
        ends = np.minimum(self.groups[group + 1], np.repeat(begins + sizes, counts))
        examples = ends - np.maximum(self.groups[group], np.repeat(begins, counts))
        lengths = self.lengths[group].astype(np.int64)
        sides = np.stack((lengths >> SIDE_BITS, lengths & (1 << SIDE_BITS) - 1))
        longest = np.maximum.reduceat(sides, heads, axis=1).sum(axis=0)
        return np.add.reduceat(examples * sides.sum(axis=0), heads), sizes * longest

    def _examples_at(self, positions: Numbers) -> Numbers:
        """The examples (B,) at positions (B,) of the epoch's order of lengths."""
        group = np.searchsorted(self.groups, positions, side="right") - 1
        begins, ends = self.groups[group], self.groups[group + 1]
        positions = begins + permute_each(positions - begins, ends - begins, _keys(self.keys[0], group))
        bucket = np.searchsorted(self.begins, positions, side="right") - 1
        position, pairs, examples = (
            positions - self.begins[bucket],
            self.bucket_sizes[bucket],
            self.begins[bucket + 1] - self.begins[bucket],
        )
        index, partial = position % pairs, position >= examples // pairs * pairs
        index[partial] = permute_each(index[partial], pairs[partial], _keys(self.keys[1], bucket[partial]))
        index += self.first[bucket]
        found = np.empty_like(index)
        for number in np.unique(self.direction[bucket]):
            chosen = self.direction[bucket] == number
            found[chosen] = self.orders[number].lines(index[chosen])
        return found + self.offsets[self.direction[bucket]]


def _keys(key: np.uint64, numbers: Numbers) -> NDArray[np.uint64]:
    """Keys of numbers (n,): (n,) uint64."""
    return mix(numbers.astype(np.uint64) + key)


def _examples(direction: Any, first: Numbers, rng: np.random.Generator) -> tuple[Numbers, Numbers]:
    """Numbers of pairs and of examples of an epoch of the buckets of a direction that begin at `first`: (k,) each."""
    count = len(direction.order)
    pairs = np.diff(first, append=count)
    passes, rest = divmod(direction.num_examples, max(1, count))
    examples = passes * pairs
    if rest:  # in Python's integers: the products have up to 68 bits
        shift, ends = int(rng.integers(count)), _blockwise(first + pairs)
        examples += np.diff(np.fromiter(((end * rest + shift) // count for end in ends), np.int64), prepend=0)
    return pairs, examples


def _blockwise(numbers: Numbers) -> Iterator[int]:
    """Yields numbers (n,) as Python's, of which few are in memory at a time."""
    return chain.from_iterable(numbers[i : i + BLOCK_RUNS].tolist() for i in range(0, len(numbers), BLOCK_RUNS))


def batch_buckets(
    lengths: Iterable[int], counts: Iterable[int], max_tokens: int | None, max_sentences: int | None
) -> Numbers:
    """Cuts sorted examples into batches as fairseq's `batch_by_size` does, whole buckets of examples at a time.

    Args:
        lengths, counts: tokens of the longer side, and number of examples, of each bucket.
        max_tokens, max_sentences: limits of a batch with padding; None: no limit.

    Returns: (p, 3) position of the first example, examples of a batch, and number of such batches.
    """
    found = array("q")
    begin = position = longest = 0
    for length, count in zip(lengths, counts, strict=True):
        end = position + count
        while position < end:
            most = max(longest, length)
            room = min(max_tokens // most if max_tokens else sys.maxsize, max_sentences or sys.maxsize)
            if position == begin and end - position >= room:
                batches = (end - position) // room
                found.extend((begin, room, batches))
                begin = position = begin + room * batches
            elif position - begin >= room:
                found.extend((begin, position - begin, 1))
                begin, longest = position, 0
            else:
                position, longest = min(end, begin + room), most
    if position > begin:
        found.extend((begin, position - begin, 1))
    return np.frombuffer(found, np.int64).reshape(-1, 3)
