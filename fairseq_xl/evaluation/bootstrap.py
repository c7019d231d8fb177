"""Bootstrap intervals of accuracies and other means."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

RESAMPLES = 1000


def accuracy(right: ArrayLike) -> dict[str, Any]:
    """(n,) bool -> the accuracy in per cent and its 95 % bootstrap interval: {"accuracy", "interval"}.

    Drawing n answers with replacement and counting the right ones is drawing from a binomial distribution.
    """
    right = np.asarray(right)
    n, share = len(right), float(np.mean(right))
    means = np.random.default_rng(1).binomial(n, share, RESAMPLES) / n
    bounds = np.percentile(means, (2.5, 97.5))
    return {"accuracy": round(100 * share, 2), "interval": [round(100 * float(bound), 2) for bound in bounds]}


def mean(values: ArrayLike, resamples: int = RESAMPLES) -> dict[str, Any]:
    """(n,) scores of examples -> their mean, "score", and, unless `resamples` is 0, its 95 % bootstrap "interval".

    Each resample is the mean of n of the scores, drawn with replacement.
    """
    values, rng = np.asarray(values, dtype=np.float64), np.random.default_rng(1)
    result: dict[str, Any] = {"score": round(float(values.mean()), 2)}
    if resamples:
        means = [values[rng.integers(len(values), size=len(values))].mean() for _ in range(resamples)]
        result["interval"] = [round(float(bound), 2) for bound in np.percentile(means, (2.5, 97.5))]
    return result


def of_sums(statistics: ArrayLike, measure: Callable[[np.ndarray], np.ndarray]) -> dict[str, Any]:
    """A measure of summed statistics, "score", and its 95 % bootstrap "interval".

    Args:
        statistics: (n, k), k numbers of each of n examples; a resample draws n examples.
        measure: function of sums (…, k) -> (…).
    """
    statistics, rng = np.asarray(statistics, dtype=np.float64), np.random.default_rng(1)
    n = len(statistics)
    sums = np.stack([rng.multinomial(n, np.full(n, 1 / n)) @ statistics for _ in range(RESAMPLES)])
    bounds = np.percentile(measure(sums), (2.5, 97.5))
    score = round(float(measure(statistics.sum(axis=0))), 2)
    return {"score": score, "interval": [round(float(bound), 2) for bound in bounds]}
