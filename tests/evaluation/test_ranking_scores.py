"""nDCG: against scikit-learn and by hand."""

import numpy as np
import pytest
from sklearn.metrics import ndcg_score

from fairseq_xl.evaluation.ranking_scores import ndcg


def test_by_hand():
    assert ndcg([0, 2, 1], [0.1, 0.9, 0.5]) == pytest.approx(1)
    second = 1 / np.log2(3)  # discounts 1, second, 1/2
    assert ndcg([2, 0, 1], [0.1, 0.9, 0.5]) == pytest.approx((second + 2 / 2) / (2 + second))
    assert ndcg([2, 0, 1], [0.1, 0.9, 0.5], "exponential") == pytest.approx((second + 3 / 2) / (3 + second))
    assert ndcg([0, 0], [1, 2]) == 0 and ndcg([1], [5]) == 1


def test_the_order_of_texts_with_equal_scores_does_not_matter():
    values = {ndcg(relevance, [7.0] * 3) for relevance in ([2, 0, 1], [0, 1, 2], [1, 2, 0])}
    assert len(values) == 1 and 0 < values.pop() < 1


def test_it_is_scikit_learns():
    rng = np.random.default_rng(1)
    for _ in range(30):
        size = rng.integers(2, 12)
        relevance, scores = rng.integers(0, 5, size), rng.integers(0, 6, size) / 2
        assert ndcg(relevance, scores) == pytest.approx(ndcg_score([relevance], [scores]), abs=1e-12)
        expected = ndcg_score([2.0**relevance - 1], [scores])
        assert ndcg(relevance, scores, "exponential") == pytest.approx(expected, abs=1e-12)
