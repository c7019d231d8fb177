"""Order of the batches of an epoch: fairseq's with one batch an update, the same updates on any number of ranks."""

import logging

import numpy as np
import pytest
from fairseq.data import FairseqDataset, iterators

from fairseq_xl.data.balance import token_counts
from fairseq_xl.data.epochs import BalancedEpochs

BATCHES = 45


class Numbers(FairseqDataset):
    """Batches of two numbers; example n has 5 to 99 tokens."""

    lengths = np.random.default_rng(1).integers(5, 100, 2 * BATCHES)

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        return index

    def collater(self, samples):
        return list(samples)

    def token_counts(self, batches):
        return token_counts(batches, self.lengths, np.ones_like(self.lengths), self.lengths[:, None])


def fairseqs(rank=0, ranks=1, **more):
    batches = [[number, number + 1] for number in range(0, 2 * BATCHES, 2)]
    more = {"seed": 7, "persistent_workers": False} | more
    return iterators.EpochBatchIterator(Numbers(), list, batches, num_shards=ranks, shard_id=rank, **more)


def epochs(rank=0, ranks=1, micro_steps=(1,), **more):
    return BalancedEpochs(fairseqs(rank, ranks, **more), micro_steps)


def dealt(ranks=1, micro_steps=(1,), epoch=1, make=epochs, **more):
    """The batches of an epoch in the order in which they are dealt out."""
    of_ranks = [make(rank, ranks, micro_steps, **more).ordered_batches(epoch, False, True) for rank in range(ranks)]
    return [tuple(batch) for step in zip(*of_ranks, strict=True) for batch in step]


def updates(batches, size):
    return [sorted(batches[first : first + size]) for first in range(0, len(batches), size)]


@pytest.mark.parametrize("epoch", [1, 2])
@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("grouped", [True, False])
def test_one_batch_in_each_update_is_the_order_of_fairseq(epoch, shuffle, grouped):
    ours, theirs = (make(grouped_shuffling=grouped) for make in (epochs, fairseqs))
    assert ours.ordered_batches(epoch, False, shuffle) == theirs.ordered_batches(epoch, False, shuffle)


@pytest.mark.parametrize("size", [2, 4, 6])
def test_updates_are_the_same_on_any_number_of_ranks(size):
    """45 batches: 22 whole updates of two, and one batch that is last as in the order of fairseq."""
    one = dealt(1, [size])
    for ranks in (2, size):
        several = dealt(ranks, [size // ranks])
        assert several[: len(one)] == one and not any(several[len(one) :])
    drawn = [tuple(batch) for batch in fairseqs().ordered_batches(1, False, True)]
    whole = BATCHES // size * size
    assert sorted(one) == sorted(drawn) and one[whole:] == drawn[whole:]
    assert updates(one[:whole], size) != updates(drawn[:whole], size)
    sizes = [[int(Numbers.lengths[list(batch)].sum()) for batch in update] for update in updates(one[:whole], size)]
    spread, before = (
        sum(max(each) - min(each) for each in found)
        for found in (sizes, [[int(Numbers.lengths[list(b)].sum()) for b in u] for u in updates(drawn[:whole], size)])
    )
    assert spread < before / 4


def test_micro_steps_change_with_the_epoch():
    """--update-freq 1,2: the first epoch is that of fairseq, later ones have updates of two batches."""
    assert dealt(1, [1, 2], 1) == dealt(1, [1], 1)
    assert dealt(1, [1, 2], 2) == dealt(1, [2], 2) != dealt(1, [1], 2)
    assert dealt(1, [1, 2], 3) == dealt(2, [1], 3)[:BATCHES]


def test_groups_of_ranks_stay_together_and_none_is_lost():
    """--grouped-shuffling: 15 groups of three; with two ranks the last batch, which fairseq leaves out, comes last."""
    assert dealt(3, grouped_shuffling=True) == dealt(
        3, make=lambda rank, ranks, _, **more: fairseqs(rank, ranks, **more), grouped_shuffling=True
    )
    two = dealt(2, grouped_shuffling=True)
    assert two[44:] == [(88, 89), ()] and len(set(two)) == BATCHES + 1


@pytest.mark.parametrize("before, after", [((2, 1), (1, 1)), ((1, 1), (2, 2)), ((1, 4), (2, 1))])
def test_an_epoch_goes_on_in_the_order_in_which_it_was_begun(before, after):
    """Ranks and micro-steps before and after; 8 batches are read before, the rest after: each once."""
    (ranks, frequency), (later, another) = before, after
    parts = [epochs(rank, ranks, [frequency]) for rank in range(ranks)]
    read = []
    for part in parts:
        batches = part.next_epoch_itr()
        read += [next(batches) for _ in range(8 // ranks)]
    state = parts[0].state_dict() | {"iterations_in_epoch": 8 // later}
    for rank in range(later):
        part = epochs(rank, later, [another])
        part.load_state_dict(state)
        assert part.batches_per_update(1) == ranks * frequency
        assert part.batches_per_update(2) == later * another
        read += [batch for batch in part.next_epoch_itr() if batch]
    assert sorted(read) == [[number, number + 1] for number in range(0, 2 * BATCHES, 2)]


def test_the_rest_of_an_epoch_of_an_earlier_version_is_as_drawn():
    """Its checkpoint has no number of batches of an update; the next epoch has the order of this version."""
    part = epochs(1, 2)
    part.load_state_dict({"version": 2, "epoch": 1, "iterations_in_epoch": 3, "shuffle": True})
    expected = fairseqs(1, 2)
    assert list(part.next_epoch_itr()) == expected.ordered_batches(1, False, True)[3:]
    assert list(part.next_epoch_itr()) == epochs(1, 2).ordered_batches(2, False, True)


def test_each_shuffled_epoch_is_logged_once(caplog):
    caplog.set_level(logging.INFO)
    epochs(1, 2).ordered_batches(1, False, False)
    assert not caplog.messages
    part = epochs(0, 2)
    for _ in range(2):
        list(part.next_epoch_itr())
    assert [message[:19] for message in caplog.messages] == ["batches of epoch 1:", "batches of epoch 2:"]
    assert "the 2 ranks wait" in caplog.messages[0]
