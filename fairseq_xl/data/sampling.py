"""Shares of languages and pairs, and drawing without replacement. Imports neither torch nor fairseq."""

import numpy as np
from numpy.typing import ArrayLike


def smoothed_shares(counts: ArrayLike, alpha: float) -> np.ndarray:
    """q_i = p_i^α / Σ_j p_j^α with p_i = n_i / Σ n (Lample & Conneau 2019, section 3.1).

    (L,) counts -> (L,) shares that sum to 1; a count of 0 has the share 0.
    """
    counts = np.asarray(counts, dtype=np.float64)
    powered = (counts / counts.sum()) ** alpha
    powered[counts == 0] = 0
    return powered / powered.sum()


def draw_passes(rng: np.random.Generator, available: int, count: int) -> np.ndarray:
    """Random `count` of the numbers below `available`, (count,), each at most once in a pass over all of them."""
    passes = []
    while count > 0:
        passes.append(rng.choice(available, min(count, available), replace=False))
        count -= available
    return np.concatenate(passes)
