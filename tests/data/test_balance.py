"""Order of batches by size, numbers of tokens, and what the log says of both."""

import logging

import numpy as np
import pytest

from fairseq_xl.data.balance import (
    balanced_order,
    log_padding_and_waiting,
    padding_share,
    token_counts,
    waiting_share,
)


def order_of(sizes, batches_per_update):
    return balanced_order(np.array(sizes), batches_per_update, np.random.default_rng(1)).tolist()


def test_neighbors_in_size_go_to_one_update_and_a_partial_update_stays_last():
    order = order_of([64, 8, 30, 60, 10, 32, 1], 2)
    assert sorted(tuple(order[first : first + 2]) for first in (0, 2, 4)) == [(1, 4), (2, 5), (3, 0)]
    assert order[6:] == [6]
    assert order_of([5, 1, 4], 4) == [0, 1, 2] and order_of([], 2) == []


def test_one_batch_in_an_update_stays_in_the_order_drawn():
    assert order_of([64, 8, 30, 60], 1) == [0, 1, 2, 3]


def test_each_update_keeps_its_number_of_batches_of_each_kind():
    """Two kinds in turn, each of sizes 8, 16, …, 64: equal sizes go to the same update, in another order of updates."""
    rng = np.random.default_rng(2)
    sizes = np.stack([8 * (1 + rng.permutation(8)) for _ in range(2)], axis=1).reshape(-1)
    order = balanced_order(sizes, 2, np.random.default_rng(1), kinds=np.tile([0, 1], 8)).reshape(-1, 2)
    assert sorted(order.reshape(-1).tolist()) == list(range(16)) and (order % 2 == [0, 1]).all()
    of_updates = sizes[order]
    assert (of_updates[:, 0] == of_updates[:, 1]).all() and of_updates[:, 0].tolist() != list(range(8, 72, 8))
    # updates of other mixes: three, two and one batch of the first kind
    sizes, kinds = np.array([60, 10, 50, 40, 8, 20, 30, 64, 16]), np.array([0, 0, 0, 0, 0, 1, 0, 1, 1])
    order = balanced_order(sizes, 3, np.random.default_rng(1), kinds=kinds).reshape(-1, 3)
    assert kinds[order].sum(axis=1).tolist() == [0, 1, 2] and (np.diff(sizes[order], axis=1) > 0).all()
    first = [sizes[update[kinds[update] == 0]].tolist() for update in order]
    assert sorted(sum(sorted(first), [])) == sum(sorted(first), [])  # each has a run of the sorted sizes


def test_kinds_that_are_one_change_nothing():
    sizes = np.random.default_rng(3).integers(1, 100, 700)
    one = balanced_order(sizes, 4, np.random.default_rng(1), kinds=np.full(700, 5))
    assert one.tolist() == order_of(sizes, 4)


def test_numbers_of_tokens_by_hand():
    """Three examples on two sides, of 3 + 2, 1 + 4 and 2 + 2 tokens: batches of 2 x (3 + 4) and 1 x (2 + 2)."""
    sides = np.array([[3, 2], [1, 4], [2, 2]])
    tokens, padded = token_counts([[1, 0], [2]], sides.sum(axis=1), np.ones(3, dtype=int), sides)
    assert (tokens.tolist(), padded.tolist()) == ([10, 4], [14, 4])
    # an example of two inputs of 3 and 2 tokens, and one of one of 4: 3 x 4
    tokens, padded = token_counts([[0, 1]], np.array([5, 4]), np.array([2, 1]), np.array([[3], [4]]))
    assert (tokens.tolist(), padded.tolist()) == ([9], [12])
    assert padding_share(tokens, padded) == 0.25


def test_ranks_without_a_batch_wait_too():
    assert waiting_share(np.array([4, 2, 6]), 2) == pytest.approx(1 - 12 / (2 * (4 + 6)))


def test_the_log(caplog):
    caplog.set_level(logging.INFO)
    log_padding_and_waiting(
        3, 2, np.array([4, 1, 5, 2]), np.array([1, 2, 4, 5]), np.full(4, 6), "; shares of 4 of 9 batches"
    )
    log_padding_and_waiting(3, 1, np.array([4, 1]), np.array([4, 1]), np.array([4, 1]))
    log_padding_and_waiting(3, 2, None, np.array([4, 1]), np.array([4, 1]))
    assert caplog.messages == [
        "batches of epoch 3: 50.0 % of the tokens are padding; estimated from token counts, the 2 ranks wait 14.3 % of "
        "the time for the largest batch of a micro-step (33.3 % without reordering batches by size); shares of 4 of 9 "
        "batches",
        "batches of epoch 3: 0.0 % of the tokens are padding",
        "batches of epoch 3: 0.0 % of the tokens are padding; estimated from token counts, the 2 ranks wait 37.5 % of "
        "the time for the largest batch of a micro-step",
    ]
