"""Tests over seeds whether one system is better than another.

Scores are paired: the n-th scores of both systems are of pre-trainings, or of fine-tunings, with the same seed.
"""

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, stats

T = TypeVar("T")
LEVEL, POWER = 0.05, 0.8  # of two-sided tests
SIGN_FLIPS, MOST_SEEDS = 9999, 1000
CONCLUSIONS = SHOWN, NOT_SHOWN, CONTRADICTED = "shown", "not shown", "contradicted"


@dataclass(frozen=True)
class Verdict:
    """The difference of two systems, with its test over seeds.

    Attributes:
        differences: of the scores, one per seed, in points.
        mean: of the differences.
        interval: 95 % confidence interval of the mean (Student's t), None for a single seed.
        p: of the two-sided paired t test, None for a single seed.
        detectable: the true difference that this number of seeds shows with 80 % probability, if differences vary over
            seeds as these do; None for a single seed.
        seeds_needed: number of seeds that show a true difference of `mean` with 80 % probability; None for a single
            seed, for a mean that is not above 0, and above 1,000.
    """

    differences: list[float]
    mean: float
    interval: tuple[float, float] | None
    p: float | None
    detectable: float | None
    seeds_needed: int | None

    @property
    def conclusion(self) -> str:
        """`shown`: the interval is above 0; `contradicted`: it is below 0; else `not shown`."""
        if self.interval is None:
            return NOT_SHOWN
        low, high = self.interval
        return SHOWN if low > 0 else CONTRADICTED if high < 0 else NOT_SHOWN


def judge(better: ArrayLike, worse: ArrayLike) -> Verdict:
    """Scores (n,) of two systems with the same n seeds -> the `Verdict` on "the first system is better"."""
    differences = np.asarray(better, dtype=float) - np.asarray(worse, dtype=float)
    mean, seeds = float(differences.mean()), len(differences)
    if seeds == 1:
        return Verdict(differences.tolist(), mean, None, None, None, None)
    deviation = float(differences.std(ddof=1))
    if deviation == 0:  # no t test
        return Verdict(differences.tolist(), mean, (mean, mean), float(mean == 0), 0.0, 2 if mean > 0 else None)
    test = stats.ttest_1samp(differences, 0)
    interval = test.confidence_interval(1 - LEVEL)
    return Verdict(
        differences.tolist(),
        mean,
        (float(interval.low), float(interval.high)),
        float(test.pvalue),
        deviation * detectable_effect(seeds),
        seeds_needed(mean / deviation),
    )


def power(effect: float, seeds: int) -> float:
    """Probability that a two-sided paired t test at 5 % finds a positive difference (Cohen 1988).

    Args:
        effect: the true mean difference over its standard deviation.
    """
    return float(stats.nct.sf(stats.t.ppf(1 - LEVEL / 2, seeds - 1), seeds - 1, effect * math.sqrt(seeds)))


def detectable_effect(seeds: int) -> float:
    """The effect (mean over standard deviation) that `power` finds with 80 % probability."""
    return float(optimize.brentq(lambda effect: power(effect, seeds) - POWER, 0, 100))


def seeds_needed(effect: float) -> int | None:
    """Smallest number of seeds, 2 or more, that finds this effect with 80 % probability; None above 1,000."""
    if effect <= 0 or power(effect, MOST_SEEDS) < POWER:
        return None
    low, high = 1, MOST_SEEDS  # power rises with the number of seeds
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(effect, middle) >= POWER else (middle, high)
    return high


def p_over_items(better: ArrayLike, worse: ArrayLike) -> float:
    """Two-sided p of the mean difference over test items, by random exchange of the two systems' scores of an item.

    It tests the variation over test items, not over seeds.

    Args:
        better, worse: (seeds, items) scores of the same items.
    """
    differences = np.asarray(better, dtype=float).mean(axis=0) - np.asarray(worse, dtype=float).mean(axis=0)
    found = stats.permutation_test(
        (differences,), np.mean, permutation_type="samples", n_resamples=SIGN_FLIPS, batch=500, rng=1
    )
    return float(found.pvalue)


def broadcast(first: list[T], second: list[T]) -> tuple[list[T], list[T]]:
    """Makes one value per seed of both lists: a single value, of a system without seeds, is repeated."""
    seeds = max(len(first), len(second))
    return first * seeds if len(first) == 1 else first, second * seeds if len(second) == 1 else second


def cells(verdict: Verdict, over_items: float | None) -> list[str]:
    """Formats a verdict: mean and interval, p over items, conclusion, and what 80 % power would take if not shown."""
    low_high = "" if verdict.interval is None else " ({:+.1f} to {:+.1f})".format(*verdict.interval)
    conclusion = verdict.conclusion
    if conclusion == NOT_SHOWN and verdict.detectable is not None:
        seeds = len(verdict.differences)
        conclusion += f" (80 % power: {verdict.detectable:.1f} points with {seeds} seeds"
        if verdict.seeds_needed:
            conclusion += f"; {verdict.seeds_needed} seeds for {verdict.mean:.1f}"
        conclusion += ")"
    return [f"{verdict.mean:+.1f}{low_high}", "" if over_items is None else f"{over_items:.4f}", conclusion]
