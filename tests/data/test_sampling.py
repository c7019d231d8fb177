"""Sampling shares worked out by hand (X2, X6)."""

import pytest

from fairseq_xl.data.sampling import smoothed_shares


@pytest.mark.parametrize(
    "counts, alpha, expected",
    [
        ([900, 100], 0.5, [0.75, 0.25]),  # sqrt(0.9) : sqrt(0.1) = 3 : 1
        ([160, 90, 10], 0.5, [0.5, 0.375, 0.125]),  # 4 : 3 : 1
        ([128, 1], 0.7, [29.857 / 30.857, 1 / 30.857]),  # 128^0.7 = 2^4.9 = 29.857
        ([6, 3, 1], 1, [0.6, 0.3, 0.1]),
        ([6, 3, 1], 0, [1 / 3, 1 / 3, 1 / 3]),
        ([5], 0.7, [1.0]),
    ],
)
def test_shares(counts, alpha, expected):
    assert smoothed_shares(counts, alpha) == pytest.approx(expected, rel=1e-5)
