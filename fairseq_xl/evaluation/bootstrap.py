"""How sure an accuracy is."""

import numpy as np

RESAMPLES = 1000


def accuracy(right):
    """(n,) bool -> the accuracy in per cent and its 95 % bootstrap interval: {"accuracy", "interval"}.

    Drawing n answers with replacement and counting the right ones is drawing from a binomial distribution.
    """
    n, share = len(right), float(np.mean(right))
    means = np.random.default_rng(1).binomial(n, share, RESAMPLES) / n
    bounds = np.percentile(means, (2.5, 97.5))
    return {"accuracy": round(100 * share, 2), "interval": [round(100 * float(bound), 2) for bound in bounds]}
