"""Order of batches by size."""

import numpy as np

from fairseq_xl.data.plan.balance import balanced_order


def order_of(sizes, batches_per_update):
    return balanced_order(np.array(sizes), batches_per_update, np.random.default_rng(1)).tolist()


def test_neighbors_in_size_go_to_one_update_and_a_partial_update_stays_last():
    order = order_of([64, 8, 30, 60, 10, 32, 1], 2)
    assert sorted(tuple(order[first : first + 2]) for first in (0, 2, 4)) == [(1, 4), (2, 5), (3, 0)]
    assert order[6:] == [6]
    assert order_of([5, 1, 4], 4) == [0, 1, 2] and order_of([], 2) == []


def test_one_batch_in_an_update_stays_in_the_order_drawn():
    assert order_of([64, 8, 30, 60], 1) == [0, 1, 2, 3]
