"""fairseq's epoch iterators with batches reordered: the ranks of a micro-step get batches of similar size."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from fairseq.data import data_utils, iterators

from fairseq_xl.data.balance import balanced_order, log_padding_and_waiting
from fairseq_xl.data.data_loader import EpochBatches, options_of


class ReorderedEpochIterator(EpochBatches):
    """fairseq's epoch iterator that stores what the order of an epoch depends on: batches in an update, and ranks.

    A run that resumes within an epoch keeps the stored numbers, also with another number of ranks or micro-steps.
    Checkpoints of earlier versions have no number of batches: the rest of their epoch is not reordered. Without a
    number of ranks the present one counts.
    """

    micro_steps: Sequence[int] = (1,)  # micro-steps of an update, by epoch; the last value applies to all later epochs
    #: whether no batch is left of the epoch of the checkpoint; training then needs the batches of the next epoch
    epoch_is_over = False
    _resumed: tuple[int, int, int] | None = None  # (epoch, batches in an update, ranks), from the checkpoint

    def _begun_with(self, epoch: int) -> tuple[int, int]:
        """Batches in an update of an epoch, over all ranks and micro-steps, and ranks, when the epoch was begun."""
        if self._resumed is not None and self._resumed[0] == epoch:
            return self._resumed[1:]
        return self.num_shards * int(self.micro_steps[min(epoch, len(self.micro_steps)) - 1]), self.num_shards

    def batches_per_update(self, epoch: int) -> int:
        """Batches in an update of an epoch, over all ranks and micro-steps, when the epoch was begun."""
        return self._begun_with(epoch)[0]

    def group_size(self, epoch: int) -> int:
        """Batches that stay together when an epoch is shuffled: with --grouped-shuffling one for each rank, else 1."""
        return self._begun_with(epoch)[1] if self.grouped_shuffling else 1

    def reorders(self, epoch: int) -> bool:
        """Whether the batches of a shuffled epoch are reordered by size."""
        return not self.grouped_shuffling and self.batches_per_update(epoch) > 1

    def state_dict(self) -> dict[str, Any]:
        """fairseq's state with the number of batches in an update and of ranks."""
        state: dict[str, Any] = super().state_dict()
        return state | dict(zip(("batches_per_update", "ranks"), self._begun_with(state["epoch"]), strict=True))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continues an epoch after the batches that were read.

        If none is left, which happens when more ranks than before round the position up, the next epoch begins and
        `epoch_is_over` is set.
        """
        epoch, position = state_dict["epoch"], state_dict.get("iterations_in_epoch", 0)
        if position:
            ranks = int(state_dict.get("ranks", 0)) or self.num_shards
            self.epoch, self._resumed = epoch, (epoch, int(state_dict.get("batches_per_update", 1)), ranks)
            self.epoch_is_over = len(self) - bool(self.skip_remainder_batch) <= position <= len(self)
        if self.epoch_is_over:
            state_dict = state_dict | {"epoch": epoch + 1, "iterations_in_epoch": 0}
        super().load_state_dict(state_dict)


class BalancedEpochs(ReorderedEpochIterator):
    """fairseq's iterator over a list of batches, which are reordered as in `balanced_order`.

    With one batch in each update, with --grouped-shuffling and in epochs of --curriculum the order is fairseq's, except
    that no batches are left out after the last group of --grouped-shuffling. The log has the shares of padding and of
    waiting of each shuffled epoch.

    Args:
        iterator: fairseq's iterator. Its dataset has `token_counts`, and `batch_kinds` if each update keeps its number
            of batches of each kind.
        micro_steps: micro-steps of an update, by epoch (--update-freq).
    """

    def __init__(self, iterator: iterators.EpochBatchIterator, micro_steps: Sequence[int]):
        super().__init__(iterator.dataset, iterator.collate_fn, iterator.frozen_batches, **options_of(iterator))
        self.micro_steps = micro_steps

    def ordered_batches(self, epoch: int, fix_batches_to_gpus: bool, shuffle: bool) -> list[Any]:
        """The batches of this rank in the order of the epoch; [] for a micro-step without a batch for this rank."""
        batches = self.frozen_batches
        order = np.arange(len(batches))
        if shuffle and len(batches):
            order = self._shuffled(epoch)
        dealt = [batches[number] for number in order[self.shard_id :: self.num_shards].tolist()]
        return dealt + [[]] * (len(self) - len(dealt))

    def _shuffled(self, epoch: int) -> np.ndarray:
        """Numbers (n,) of the batches in the order of an epoch; logs its shares of padding and of waiting."""
        group, numbers = self.group_size(epoch), list(range(len(self.frozen_batches)))
        whole = len(numbers) // group * group
        groups = [numbers[first : first + group] for first in range(0, whole, group)]
        with data_utils.numpy_seed(self.seed + epoch):
            np.random.shuffle(groups)
        drawn = order = np.array([*itertools.chain(*groups), *numbers[whole:]])
        tokens, padded = self.dataset.token_counts(self.frozen_batches)
        reorders = self.reorders(epoch)
        if reorders:
            kinds, rng = None, np.random.default_rng((self.seed, epoch, 1))
            if hasattr(self.dataset, "batch_kinds"):
                kinds = self.dataset.batch_kinds(self.frozen_batches)[drawn]
            order = drawn[balanced_order(tokens[drawn], self.batches_per_update(epoch), rng, kinds=kinds)]
        log_padding_and_waiting(epoch, self.num_shards, tokens[drawn] if reorders else None, tokens[order], padded)
        return order
