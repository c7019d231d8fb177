"""Pooling of hidden states, by hand."""

import pytest
import torch

from fairseq_xl.modules.pooling import pool


@pytest.mark.parametrize(
    "pooling, expected, unpadded",
    [
        ("first", [[1, 2], [-1, -1]], [[1, 2], [-1, -1]]),
        ("mean", [[2, 4], [-3, -2]], [[13 / 3, 17 / 3], [-3, -2]]),
        ("max", [[3, 6], [-1, -1]], [[9, 9], [-1, -1]]),
    ],
)
def test_padding_is_not_pooled(pooling, expected, unpadded):
    hidden = torch.tensor([[[1.0, 2.0], [3.0, 6.0], [9.0, 9.0]], [[-1.0, -1.0], [-2.0, -2.0], [-6.0, -3.0]]])
    padding = torch.tensor([[False, False, True], [False, False, False]])
    assert pool(hidden, padding, pooling).tolist() == expected
    torch.testing.assert_close(pool(hidden, None, pooling), torch.tensor(unpadded).float())
