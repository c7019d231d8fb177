"""Significance tests of the difference of two systems, over seeds and over test examples.

Scores are paired: runs of the two systems with the same seed are compared.
"""

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, stats

T = TypeVar("T")
LEVEL, POWER = 0.05, 0.8  # of two-sided tests
SIGN_FLIPS, MAX_SEEDS = 9999, 1000
#: Conclusions on a claim, and on a difference from a baseline or control: interval above 0, around 0, below 0.
CLAIM = "shown", "not shown", "contradicted"
CONTROL = "better", "no difference shown", "worse"


@dataclass(frozen=True)
class PairedTest:
    """The difference of two systems, first minus second, with its t test over seeds.

    Without a t test, for a single seed or equal differences of all seeds, `interval`, `p`, `detectable` and
    `seeds_needed` are None.

    Attributes:
        differences: differences of the scores, one per seed, in points.
        mean: mean of the differences.
        interval: 95 % confidence interval of the mean (Student's t).
        p: p of the two-sided paired t test.
        detectable: true difference that this number of seeds detects with 80 % power, for the same variation of
            differences over seeds.
        seeds_needed: number of seeds that detect a true difference of `mean` with 80 % power; None above 1,000, and if
            the mean is not above 0.
    """

    differences: list[float]
    mean: float
    interval: tuple[float, float] | None
    p: float | None
    detectable: float | None
    seeds_needed: int | None

    @property
    def sign(self) -> int:
        """1 for an interval above 0, -1 for an interval below 0, otherwise 0."""
        low, high = self.interval or (0, 0)
        return (low > 0) - (high < 0)


def paired_t_test(first: ArrayLike, second: ArrayLike) -> PairedTest:
    """Tests the difference of two systems' scores, each (n,) of the same n seeds."""
    differences = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
    mean, seeds = float(differences.mean()), len(differences)
    deviation = float(differences.std(ddof=1)) if seeds > 1 else 0.0
    if deviation == 0:  # no t test
        return PairedTest(differences.tolist(), mean, None, None, None, None)
    test = stats.ttest_1samp(differences, 0)
    interval = test.confidence_interval(1 - LEVEL)
    return PairedTest(
        differences.tolist(),
        mean,
        (float(interval.low), float(interval.high)),
        float(test.pvalue),
        deviation * detectable_effect(seeds),
        seeds_needed(mean / deviation),
    )


def power(effect: float, seeds: int) -> float:
    """Returns the probability that a two-sided paired t test at 5 % detects a positive difference (Cohen 1988).

    Args:
        effect: the true mean difference over its standard deviation.
    """
    return float(stats.nct.sf(stats.t.ppf(1 - LEVEL / 2, seeds - 1), seeds - 1, effect * math.sqrt(seeds)))


def detectable_effect(seeds: int) -> float:
    """Returns the effect (mean over standard deviation) that is detected with 80 % probability."""
    return float(optimize.brentq(lambda effect: power(effect, seeds) - POWER, 0, 100))


def seeds_needed(effect: float) -> int | None:
    """Returns the smallest number of seeds, 2 or more, that detects this effect with 80 % power; None above 1,000."""
    if effect <= 0 or power(effect, MAX_SEEDS) < POWER:
        return None
    low, high = 1, MAX_SEEDS  # power rises with the number of seeds
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(effect, middle) >= POWER else (middle, high)
    return high


def permutation_test(first: ArrayLike, second: ArrayLike) -> tuple[float, float]:
    """Returns the mean difference over test examples and its two-sided p, by random exchange of the systems' scores.

    The scores of an example are averaged over the seeds: p measures the variation over examples, not over seeds.

    Args:
        first, second: (seeds, examples) scores of the same examples.
    """
    differences = np.asarray(first, dtype=float).mean(axis=0) - np.asarray(second, dtype=float).mean(axis=0)
    result = stats.permutation_test(
        (differences,), np.mean, permutation_type="samples", n_resamples=SIGN_FLIPS, batch=500, rng=1
    )
    return float(result.statistic), float(result.pvalue)


def broadcast(first: list[T], second: list[T]) -> tuple[list[T], list[T]]:
    """Repeats a single score, of a system without seeds, once per seed of the other system."""
    seeds = max(len(first), len(second))
    return first * seeds if len(first) == 1 else first, second * seeds if len(second) == 1 else second


def over_examples(tests: dict[str, tuple[float, float]]) -> str:
    """Formats tests over the examples of several texts, {text: (difference, p)}.

    If all differences have the same sign, it is the largest p, since texts may be translations of each other.
    Otherwise the texts of each sign are listed.
    """
    above, below = ([text for text, (difference, _) in tests.items() if sign * difference > 0] for sign in (1, -1))
    if above and below:
        return f"mixed: above in {', '.join(above)}; below in {', '.join(below)}"
    return f"{max(p for _, p in tests.values()):.4f}" if tests else ""


def cells(test: PairedTest, conclusions: tuple[str, str, str]) -> tuple[str, str]:
    """Formats a test: (mean and interval, conclusion). `conclusions`: `CLAIM` or `CONTROL`.

    If the interval contains 0, the conclusion has the difference that these seeds detect with 80 % power, and the
    number of seeds that detect the measured difference.
    """
    low_high = "" if test.interval is None else " ({:+.1f} to {:+.1f})".format(*test.interval)
    conclusion = conclusions[1 - test.sign]
    if test.sign == 0 and test.detectable is not None:
        conclusion += f" (detectable: {test.detectable:.1f} with {len(test.differences)} seeds"
        conclusion += f", {test.mean:.1f} with {test.seeds_needed})" if test.seeds_needed else ")"
    return f"{test.mean:+.1f}{low_high}", conclusion
