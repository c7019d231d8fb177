"""Order of batches by size, and what the log says of it."""

import logging

import numpy as np
import pytest

from fairseq_xl.data.balance import (
    balanced_order,
    log_padding_and_waiting,
    padding_share,
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


def test_share_of_padding_by_hand():
    """Of 2 x 7 and 1 x 4 tokens with padding 10 and 4 are tokens."""
    assert padding_share(np.array([10, 4]), np.array([14, 4])) == pytest.approx(4 / 18)


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
