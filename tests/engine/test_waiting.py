"""What the log says of padding and of ranks that wait."""

import logging

import numpy as np
import pytest

from fairseq_xl.engine.waiting import log_padding_and_waiting, padding_share, waiting_share


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
