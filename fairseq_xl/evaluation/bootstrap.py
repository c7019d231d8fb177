"""Bootstrap intervals of accuracies, means and correlations. n examples."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fairseq_xl.io.versions import version

RESAMPLES, SEED = 1000, 1


def signature(metric: str) -> str:
    """A signature in sacreBLEU's form: the metric, `bs` and `seed` of the intervals, and this package's version."""
    return f"{metric}|bs:{RESAMPLES}|seed:{SEED}|version:{version('fairseq_xl')}"


def accuracy(right: ArrayLike) -> dict[str, Any]:
    """(n,) bool -> accuracy in percent and its 95 % interval; n draws with replacement are a binomial distribution."""
    right = np.asarray(right)
    n, share = len(right), float(np.mean(right))
    means = np.random.default_rng(SEED).binomial(n, share, RESAMPLES) / n
    bounds = np.percentile(means, (2.5, 97.5))
    return {"accuracy": round(100 * share, 2), "interval": [round(100 * float(bound), 2) for bound in bounds]}


def macro_accuracy(groups: Sequence[ArrayLike]) -> dict[str, Any]:
    """Mean of the accuracies of groups (n_i,) bool, in percent, and its 95 % interval with draws within each group."""
    rng, sizes = np.random.default_rng(SEED), [len(np.asarray(right)) for right in groups]
    shares = [float(np.mean(np.asarray(right))) for right in groups]
    draws = [rng.binomial(n, share, RESAMPLES) / n for n, share in zip(sizes, shares)]
    return {"accuracy": round(100 * float(np.mean(shares)), 2), "interval": _interval(100 * np.mean(draws, axis=0))}


def _interval(resampled: Any, decimals: int = 2) -> list[float]:
    return [round(float(bound), decimals) for bound in np.percentile(resampled, (2.5, 97.5))]


def mean(values: ArrayLike, resamples: int = RESAMPLES, decimals: int = 2) -> dict[str, Any]:
    """(n,) scores of examples -> their mean, "score", and, unless `resamples` is 0, its 95 % bootstrap "interval"."""
    values, rng = np.asarray(values, dtype=np.float64), np.random.default_rng(SEED)
    result: dict[str, Any] = {"score": round(float(values.mean()), decimals)}
    if resamples:
        means = [values[rng.integers(len(values), size=len(values))].mean() for _ in range(resamples)]
        result["interval"] = _interval(means, decimals)
    return result


def corpus_metrics(statistics: ArrayLike, metrics: Mapping[str, Callable[[np.ndarray], np.ndarray]]) -> dict[str, Any]:
    """{metric: score, "{metric}_interval": 95 %} of n examples' statistics (n, k); a metric maps sums (…, k) to (…)."""
    statistics, rng = np.asarray(statistics, dtype=np.float64), np.random.default_rng(SEED)
    n = len(statistics)
    sums = np.stack([np.bincount(rng.integers(n, size=n), minlength=n) @ statistics for _ in range(RESAMPLES)])
    total = statistics.sum(axis=0)
    scores: dict[str, Any] = {}
    for name, metric in metrics.items():
        scores |= {name: round(float(metric(total)), 2), f"{name}_interval": _interval(metric(sums))}
    return scores


def pearson(x: ArrayLike, y: ArrayLike) -> float:
    """Pearson's correlation of two vectors (n,); 0 if one of them is constant."""
    sides = [np.asarray(side, dtype=np.float64) for side in (x, y)]
    centered = [side - side.mean() for side in sides]
    norms = [float(np.linalg.norm(side)) for side in centered]
    return float(centered[0] @ centered[1]) / (norms[0] * norms[1]) if min(norms) > 0 else 0.0


def spearman(x: ArrayLike, y: ArrayLike) -> float:
    """Spearman's rank correlation of two vectors (n,); equal values share the mean of their ranks."""
    from scipy.stats import rankdata

    return pearson(rankdata(x), rankdata(y))


def correlation(
    measure: Callable[[np.ndarray, np.ndarray], float], predicted: ArrayLike, gold: ArrayLike
) -> dict[str, Any]:
    """A correlation with human ratings times 100, "score", and its 95 % bootstrap "interval" over the items."""
    x, y = (np.asarray(side, dtype=np.float64) for side in (predicted, gold))
    rng = np.random.default_rng(SEED)
    samples = (rng.integers(len(x), size=len(x)) for _ in range(RESAMPLES))
    resampled = [100 * measure(x[items], y[items]) for items in samples]
    return {"score": round(100 * measure(x, y), 2), "interval": _interval(resampled)}
