"""Epochs of training batches whose updates are known: the ranks of a micro-step get batches of similar size."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from fairseq.data import data_utils, iterators

from fairseq_xl.data.balance import balanced_order, log_padding_and_waiting


class EpochsOfUpdates(iterators.EpochBatchIterator):
    """fairseq's iterator with the number of batches of an update, on which the order of an epoch depends.

    A checkpoint within an epoch stores this number, so that the epoch goes on in the order in which it was begun with
    another number of ranks or micro-steps too. Without it, in a checkpoint of an earlier version, no batches are
    exchanged in the rest of the epoch.
    """

    micro_steps: Sequence[int] = (1,)  # micro-steps of an update by epoch; the last one counts for all that follow
    _begun: tuple[int, int] | None = None  # an epoch, and the batches of its updates when it was begun

    def batches_per_update(self, epoch: int) -> int:
        """Batches of an update of an epoch, over all ranks and micro-steps."""
        if self._begun is not None and self._begun[0] == epoch:
            return self._begun[1]
        return self.num_shards * int(self.micro_steps[min(epoch, len(self.micro_steps)) - 1])

    def state_dict(self) -> dict[str, Any]:
        """fairseq's state with the number of batches of an update."""
        state: dict[str, Any] = super().state_dict()
        return state | {"batches_per_update": self.batches_per_update(state["epoch"])}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continues an epoch after the batches that were read."""
        if state_dict.get("iterations_in_epoch"):
            self._begun = state_dict["epoch"], int(state_dict.get("batches_per_update", 1))
        super().load_state_dict(state_dict)


class BalancedEpochs(EpochsOfUpdates):
    """fairseq's iterator over a list of batches, in which batches are exchanged as in `balanced_order`.

    With one batch in each update, with --grouped-shuffling and in epochs of --curriculum the order is fairseq's, except
    that no batches are left out after the last group of --grouped-shuffling. The log has the shares of padding and of
    waiting of each shuffled epoch.

    Args:
        found: fairseq's iterator; its dataset has `token_counts`.
        micro_steps: micro-steps of an update by epoch (--update-freq).
    """

    def __init__(self, found: iterators.EpochBatchIterator, micro_steps: Sequence[int]):
        same = ("seed", "num_shards", "shard_id", "num_workers", "epoch", "buffer_size", "skip_remainder_batch")
        more = ("grouped_shuffling", "reuse_dataloader", "persistent_workers")
        options = {name: getattr(found, name) for name in (*same, *more)}
        super().__init__(found.dataset, found.collate_fn, found.frozen_batches, **options)
        self.micro_steps = micro_steps

    def ordered_batches(self, epoch: int, fix_batches_to_gpus: bool, shuffle: bool) -> list[Any]:
        """The batches of this rank in the order of the epoch; [] where a micro-step has none left for it."""
        batches = self.frozen_batches
        order = np.arange(len(batches))
        if shuffle and len(batches):
            order = self._shuffled(epoch)
        dealt = [batches[number] for number in order[self.shard_id :: self.num_shards].tolist()]
        return dealt + [[]] * (len(self) - len(dealt))

    def _shuffled(self, epoch: int) -> np.ndarray:
        """Numbers (n,) of the batches in the order of an epoch; logs its shares of padding and of waiting."""
        group, numbers = self.num_shards if self.grouped_shuffling else 1, list(range(len(self.frozen_batches)))
        whole = len(numbers) // group * group
        groups = [numbers[first : first + group] for first in range(0, whole, group)]
        with data_utils.numpy_seed(self.seed + epoch):
            np.random.shuffle(groups)
        drawn = np.array([*itertools.chain(*groups), *numbers[whole:]])
        tokens, padded = self.dataset.token_counts(self.frozen_batches)
        order = drawn
        if not self.grouped_shuffling:
            rng = np.random.default_rng((self.seed, epoch, 1))
            order = drawn[balanced_order(tokens[drawn], self.batches_per_update(epoch), rng)]
        log_padding_and_waiting(epoch, self.num_shards, tokens[drawn], tokens[order], padded)
        return order
