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


def fairseqs(rank=0, ranks=1, size=2, **more):
    """fairseq's iterator over 90 numbers in batches of `size`."""
    batches = [list(range(number, number + size)) for number in range(0, 2 * BATCHES, size)]
    more = {"seed": 7} | more
    return iterators.EpochBatchIterator(Numbers(), list, batches, num_shards=ranks, shard_id=rank, **more)


def epochs(rank=0, ranks=1, micro_steps=(1,), **more):
    return BalancedEpochs(fairseqs(rank, ranks, **more), micro_steps)


def dealt(ranks=1, micro_steps=(1,), epoch=1, make=epochs, shuffle=True, **more):
    """The batches of an epoch in the order in which they are dealt out."""
    of_ranks = [make(rank, ranks, micro_steps, **more).ordered_batches(epoch, False, shuffle) for rank in range(ranks)]
    return [tuple(batch) for step in zip(*of_ranks, strict=True) for batch in step]


def updates(batches, size):
    return [sorted(batches[first : first + size]) for first in range(0, len(batches), size)]


@pytest.mark.parametrize("epoch", [1, 2])
@pytest.mark.parametrize(
    "ranks, shuffle, grouped",
    [(1, True, False), (1, True, True), (3, True, True)]
    + [(ranks, False, grouped) for ranks in (1, 3, 50) for grouped in (False, True)],
)
def test_without_reordering_the_order_is_that_of_fairseq(epoch, ranks, shuffle, grouped):
    """One batch in each update, --grouped-shuffling, or --curriculum; on 50 ranks five have no batch."""
    for rank in range(ranks):
        ours, theirs = (make(rank, ranks, grouped_shuffling=grouped) for make in (epochs, fairseqs))
        assert ours.ordered_batches(epoch, False, shuffle) == theirs.ordered_batches(epoch, False, shuffle)


def test_fewer_batches_than_ranks():
    """45 batches and 50 ranks: all are in one micro-step, in fairseq's order; fairseq has no group of 50."""
    drawn = [tuple(batch) for batch in fairseqs().ordered_batches(1, False, True)]
    assert dealt(50) == drawn + 5 * [()]
    assert dealt(50, grouped_shuffling=True) == sorted(drawn) + 5 * [()]


@pytest.mark.parametrize("size", [2, 4, 6])
def test_updates_are_the_same_on_any_number_of_ranks(size):
    """45 batches: the batches after the last full update stay last, in fairseq's order."""
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


@pytest.mark.parametrize("shuffle, grouped", [(True, False), (True, True), (False, False)])
@pytest.mark.parametrize("before, after", [((2, 1), (1, 1)), ((1, 1), (2, 2)), ((1, 4), (2, 1)), ((3, 2), (5, 1))])
def test_an_epoch_goes_on_in_the_order_in_which_it_was_begun(before, after, shuffle, grouped):
    """Ranks and micro-steps before and after: no batch is read twice, and fewer than ranks are skipped by rounding."""
    (ranks, frequency), (later, another) = before, after
    parts = [epochs(rank, ranks, [frequency], grouped_shuffling=grouped) for rank in range(ranks)]
    order = dealt(ranks, [frequency], shuffle=shuffle, grouped_shuffling=grouped)
    read, steps = [], -(-8 // ranks)
    for part in parts:
        batches = part.next_epoch_itr(shuffle=shuffle)
        read += [next(batches) for _ in range(steps)]
    assert sorted(map(tuple, read)) == sorted(order[: len(read)])
    state = parts[0].state_dict() | {"iterations_in_epoch": -(-len(read) // later)}
    skipped = -len(read) % later
    assert state["iterations_in_epoch"] * later == len(read) + skipped
    rest = []
    for rank in range(later):
        part = epochs(rank, later, [another], grouped_shuffling=grouped)
        part.load_state_dict(state)
        assert part.batches_per_update(1) == ranks * frequency and not part.epoch_is_over
        assert part.batches_per_update(2) == later * another
        rest += [tuple(batch) for batch in part.next_epoch_itr(shuffle=shuffle) if batch]
        assert part.state_dict()["ranks"] == later  # of the next epoch
    assert sorted(rest) == sorted(order[len(read) + skipped : BATCHES])


def test_stored_numbers_outlive_a_second_resume():
    """Begun with two ranks, continued with three and then with one."""
    order, state = dealt(2), {"version": 2, "epoch": 1, "shuffle": True, "batches_per_update": 2, "ranks": 2}
    part = epochs(0, 3)
    part.load_state_dict(state | {"iterations_in_epoch": 4})
    next(part.next_epoch_itr())
    again = part.state_dict()
    assert again == state | {"iterations_in_epoch": 5}
    last = epochs()
    last.load_state_dict(again | {"iterations_in_epoch": 15})
    assert [tuple(batch) for batch in last.next_epoch_itr()] == order[15:BATCHES]


@pytest.mark.parametrize("ranks, position, over", [(16, 6, True), (9, 10, True), (4, 22, False), (1, 88, False)])
def test_an_epoch_without_a_batch_left_is_over(ranks, position, over):
    """90 batches, of which 8 ranks have read 88; `position`: these in batches of each of `ranks`, rounded up."""
    before = epochs(0, 8, size=1)
    batches = before.next_epoch_itr()
    for _ in range(11):
        next(batches)
    state = before.state_dict() | {"iterations_in_epoch": position}
    part = epochs(0, ranks, size=1)
    part.load_state_dict(state)
    assert (part.epoch_is_over, part.epoch, part.next_epoch_idx) == (over, 1 + over, 1 + over)
    with pytest.raises(RuntimeError, match="dataloader mismatch"):  # other settings: the epoch has become shorter
        epochs(0, ranks, size=1).load_state_dict(state | {"iterations_in_epoch": -(-90 // ranks) + 1})


def test_an_epoch_without_its_last_micro_step_is_over_too():
    """--skip-remainder-batch: 16 ranks have five micro-steps of 90 batches; 80 were read."""
    part = epochs(0, 16, size=1, skip_remainder_batch=True)
    part.load_state_dict({"version": 2, "epoch": 3, "iterations_in_epoch": 5, "shuffle": True, "ranks": 8})
    assert part.epoch_is_over and part.next_epoch_idx == 4


def test_the_rest_of_an_epoch_of_an_earlier_version_is_as_drawn(caplog):
    """Its checkpoint has no number of batches in an update; the next epoch has the order of this version."""
    caplog.set_level(logging.INFO)
    part = epochs(1, 2)
    part.load_state_dict({"version": 2, "epoch": 1, "iterations_in_epoch": 3, "shuffle": True})
    expected = fairseqs(1, 2)
    assert list(part.next_epoch_itr()) == expected.ordered_batches(1, False, True)[3:]
    assert list(part.next_epoch_itr()) == epochs(1, 2).ordered_batches(2, False, True)
    assert ["the 2 ranks wait" in message for message in caplog.messages] == [True] * 3
    assert ["without reordering" in message for message in caplog.messages] == [False, True, True]


def test_each_shuffled_epoch_is_logged_once(caplog):
    caplog.set_level(logging.INFO)
    epochs(1, 2).ordered_batches(1, False, False)
    assert not caplog.messages
    part = epochs(0, 2)
    for _ in range(2):
        list(part.next_epoch_itr())
    assert [message[:19] for message in caplog.messages] == ["batches of epoch 1:", "batches of epoch 2:"]
    assert "the 2 ranks wait" in caplog.messages[0] and "without reordering" in caplog.messages[0]
    epochs(0, 2, grouped_shuffling=True).ordered_batches(1, False, True)
    assert "the 2 ranks wait" in caplog.messages[2] and "without reordering" not in caplog.messages[2]
