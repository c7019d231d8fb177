"""Training on bitext of any size: neither sizes, nor order, nor batches of the pairs are kept in memory."""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fairseq_xl.data.balance import REORDERED_UPDATES, balanced_order, log_padding_and_waiting
from fairseq_xl.data.corpus import Numbers
from fairseq_xl.data.epochs import ReorderedEpochIterator
from fairseq_xl.data.length_order import LONGEST, SortedBatches
from fairseq_xl.data.sampling import permutation
from fairseq_xl.data.translation import TranslationExamples
from fairseq_xl.errors import UserError

logger = logging.getLogger(__name__)

BATCHES_AT_ONCE = 4096  # batch numbers that are permuted at a time
LOGGED_WINDOWS = 16  # windows of updates from which the shares of padding and of waiting are estimated


class MappedTranslationDataset(TranslationExamples):
    """Training examples of directions with an `order`, of which neither lengths nor indices are kept in memory.

    The batches of an epoch have the sizes that `TranslationDataset` gives them; which of several pairs with the same
    lengths are in a batch differs.

    Args:
        directions: `Direction`s with an `order`.
        framing, pad: as in `TranslationExamples`.
    """

    def __init__(self, directions: Sequence[Any], framing: Any, pad: int):
        super().__init__(directions, framing, pad, shuffle=True)

    def num_tokens(self, index: int) -> int:
        """Length of the longer one of source and target."""
        return max(self.size(index))

    def num_tokens_vec(self, indices: Numbers) -> Numbers:
        """Lengths (n,) of the longer ones of source and target."""
        return np.array([self.num_tokens(index) for index in indices])

    def size(self, index: int) -> tuple[int, int]:
        """Lengths of encoder input and target."""
        number = int(np.searchsorted(self.offsets, index, side="right")) - 1
        direction, line = self.directions[number], int(index - self.offsets[number])
        source, target = (side.sizes[line] for side in (direction.source_sentences, direction.target_sentences))
        return int(source) + 1 + (direction.tag is not None), int(target)

    def iterator(
        self,
        max_positions: tuple[int, int] | None,
        max_tokens: int | None,
        max_sentences: int | None = None,
        seed: int = 1,
        micro_steps: Sequence[int] = (1,),
        **options: Any,
    ) -> "LazyEpochs":
        """The iterator over the batches of each epoch.

        Args:
            max_positions: longest source and target; longer pairs are left out. None: no limit.
            max_tokens, max_sentences: limits of a batch, as in fairseq; at least one is given.
            seed: of the order of batches and examples.
            micro_steps: micro-steps of an update, by epoch (--update-freq).
            options: others of fairseq's `EpochBatchIterator`.

        Its `frozen_batches` raise `UserError` if no pair is short enough, and log how many are too long.
        """
        longest = max_positions or (LONGEST, LONGEST)

        def batches(_: Any, epoch: int) -> SortedBatches:
            found = SortedBatches(self.directions, longest, max_tokens, max_sentences, seed, epoch)
            _check(found, longest, max_tokens)
            return found

        epochs = LazyEpochs(self, self.collater, batches, seed, **options)
        epochs.micro_steps = micro_steps
        return epochs


def _check(found: SortedBatches, longest: tuple[int, int], max_tokens: int | None) -> None:
    """Logs how many pairs of an epoch are too long; raises `UserError` if all are."""
    if not len(found):
        raise UserError(
            f"no training pair fits {longest} tokens (source, target), the smaller of --max-tokens {max_tokens} and "
            f"--max-positions: raise the smaller one, the longest side has {found.longest} tokens"
        )
    if found.skipped:
        logger.warning(
            "%d pairs of epoch %d have more than %s tokens (source, target) and are skipped",
            found.skipped,
            found.epoch,
            longest,
        )


class LazyEpochs(ReorderedEpochIterator):
    """fairseq's iterator without a list of batches: `batch_sampler` returns a sequence that computes each when read."""

    _batches: tuple[int, SortedBatches] | None = None

    @property
    def frozen_batches(self) -> SortedBatches:
        """The batches of the epoch, sorted by length."""
        if self._batches is None or self._batches[0] != self.epoch:
            self._batches = self.epoch, self.batch_sampler(self.dataset, self.epoch)
        return self._batches[1]

    def ordered_batches(self, epoch: int, fix_batches_to_gpus: bool, shuffle: bool) -> "RankBatches":
        """The batches of this rank in the order of the epoch.

        They are shuffled, and reordered as in `balanced_order`; with --grouped-shuffling they are shuffled in groups of
        ranks. The log has the shares of padding and of waiting of a shuffled epoch.
        """
        batches = self.frozen_batches
        numbers: Callable[[Numbers], Numbers] = np.asarray
        if shuffle:
            per_update = self.batches_per_update(epoch) if self.reorders(epoch) else 1
            reordered = ReorderedBatchNumbers(batches, self._drawn(epoch), per_update, (self.seed, epoch, 1))
            reordered.log(epoch, self.num_shards)
            numbers = reordered
        return RankBatches(
            batches,
            numbers,
            range(self.shard_id, -(-len(batches) // self.num_shards) * self.num_shards, self.num_shards),
        )

    def _drawn(self, epoch: int) -> Callable[[Numbers], Numbers]:
        """Positions in the order drawn (n,) -> numbers of batches (n,)."""
        grouped = self.group_size(epoch)
        whole = len(self.frozen_batches) // grouped  # what is left of a group of ranks comes last
        number_at = permutation(np.random.default_rng((self.seed, epoch)), max(1, whole))

        def numbers(positions: Numbers) -> Numbers:
            group, own = np.divmod(positions, grouped)
            shuffled = group < whole
            group[shuffled] = number_at(group[shuffled])
            return group * grouped + own

        return numbers


class ReorderedBatchNumbers:
    """Maps positions in the order of an epoch to numbers of batches, reordered as in `balanced_order`.

    Only the latest window of `REORDERED_UPDATES` updates is kept. Batches after the last full update stay as drawn.

    Args:
        batches: the batches of the epoch.
        drawn: positions in the order drawn (n,) -> numbers of batches (n,).
        batches_per_update: number of ranks times micro-steps; with 1 nothing is reordered.
        seed: of the random numbers.
    """

    def __init__(
        self,
        batches: SortedBatches,
        drawn: Callable[[Numbers], Numbers],
        batches_per_update: int,
        seed: tuple[int, ...],
    ):
        self.batches, self.drawn, self.seed = batches, drawn, seed
        self.batches_per_update, self.window_size = batches_per_update, REORDERED_UPDATES * batches_per_update
        self.latest: tuple[int, Numbers] | None = None

    def __call__(self, positions: Numbers) -> Numbers:
        """Positions in the order of the epoch (n,) -> numbers of batches (n,)."""
        if self.batches_per_update == 1:
            return self.drawn(positions)
        windows, found = positions // self.window_size, np.empty_like(positions)
        for window in np.unique(windows).tolist():
            if self.latest is None or self.latest[0] != window:
                self.latest = window, self._window(window)
            chosen = windows == window
            found[chosen] = self.latest[1][positions[chosen] - window * self.window_size]
        return found

    def _window(self, window: int) -> Numbers:
        """Numbers of the batches of a window, at most `window_size`, in the order of the epoch."""
        begin = window * self.window_size
        drawn = self.drawn(np.arange(begin, min(begin + self.window_size, len(self.batches))))
        sizes, rng = self.batches.token_counts(drawn)[0], np.random.default_rng((*self.seed, window))
        return drawn[balanced_order(sizes, self.batches_per_update, rng)]

    def log(self, epoch: int, ranks: int) -> None:
        """Logs the shares of padding and waiting, of at most `LOGGED_WINDOWS` evenly spaced windows.

        Micro-steps that are partly in such a window are counted whole: ranks may not divide a window of an epoch that
        was begun with another number of them.
        """
        total, size = len(self.batches), max(self.window_size, REORDERED_UPDATES * ranks)
        logged = np.unique(np.linspace(0, -(-total // size) - 1, LOGGED_WINDOWS).astype(np.int64))
        steps = [np.arange(begin // ranks, -(-(begin + size) // ranks)) for begin in (logged * size).tolist()]
        positions = (np.unique(np.concatenate(steps))[:, None] * ranks + np.arange(ranks)).reshape(-1)
        positions = positions[positions < total]
        tokens, padded = self.batches.token_counts(self(positions))
        before = None if self.batches_per_update == 1 else self.batches.token_counts(self.drawn(positions))[0]
        sample = f"; shares of {len(positions):,} of {total:,} batches" if len(positions) < total else ""
        log_padding_and_waiting(epoch, ranks, before, tokens, padded, sample)


class RankBatches(Sequence[Any]):
    """The batches of a rank, computed when they are read; [] where a micro-step has none left for it.

    Args:
        batches: the batches of all ranks.
        numbers: positions in the order of the epoch (n,) -> numbers of batches (n,).
        positions: those of this rank.
    """

    def __init__(self, batches: SortedBatches, numbers: Callable[[Numbers], Numbers], positions: range):
        self.batches, self.numbers, self.positions = batches, numbers, positions

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return RankBatches(self.batches, self.numbers, self.positions[index])
        position = self.positions[index]
        return next(iter(RankBatches(self.batches, self.numbers, range(position, position + 1))))

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self), BATCHES_AT_ONCE):
            positions = np.array(self.positions[start : start + BATCHES_AT_ONCE])
            there = positions < len(self.batches)
            for number in self.numbers(positions[there]).tolist():
                yield self.batches[number]
            yield from [[]] * int((~there).sum())
