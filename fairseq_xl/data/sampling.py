"""How often each language or pair is drawn."""

import numpy as np


def smoothed_shares(counts, alpha):
    """q_i = p_i^α / Σ_j p_j^α with p_i = n_i / Σ n (X2, X6): (L,) counts -> (L,) shares that sum to 1."""
    counts = np.asarray(counts, dtype=np.float64)
    powered = (counts / counts.sum()) ** alpha
    return powered / powered.sum()
