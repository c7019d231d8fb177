"""Correlations of predictions with human ratings, and their bootstrap intervals. n items."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fairseq_xl.evaluation import bootstrap


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
    """A correlation times 100, "score", and its 95 % bootstrap "interval" over the items."""
    sides = [np.asarray(side, dtype=np.float64) for side in (predicted, gold)]
    rng, n = np.random.default_rng(1), len(sides[0])
    samples = (rng.integers(n, size=n) for _ in range(bootstrap.RESAMPLES))
    resampled = [100 * measure(sides[0][items], sides[1][items]) for items in samples]
    bounds = np.percentile(resampled, (2.5, 97.5))
    return {"score": round(100 * measure(*sides), 2), "interval": [round(float(bound), 2) for bound in bounds]}
