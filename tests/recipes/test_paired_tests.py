"""Significance tests: against scipy's paired t test, textbook sample sizes and values worked out by hand."""

import math

import pytest
from scipy import stats

from recipes.paired_tests import (
    CLAIM,
    CONTROL,
    cells,
    detectable_effect,
    over_examples,
    paired_t_test,
    permutation_test,
    power,
    seeds_needed,
)

BETTER, WORSE = [62.0, 65.0, 61.0, 66.0], [60.0, 61.0, 60.0, 62.0]


def test_the_test_is_scipys_paired_t_test():
    """Differences 2, 4, 1, 4: mean 2.75, deviation 1.5, error 0.75; t with three degrees of freedom is 3.182."""
    found, expected = paired_t_test(BETTER, WORSE), stats.ttest_rel(BETTER, WORSE)
    assert found.differences == [2, 4, 1, 4] and found.mean == 2.75
    assert found.p == pytest.approx(expected.pvalue, abs=1e-12) and 0.03 < found.p < 0.04
    assert found.interval == pytest.approx((2.75 - 3.18245 * 0.75, 2.75 + 3.18245 * 0.75), abs=1e-4)
    assert found.sign == 1 and paired_t_test(WORSE, BETTER).sign == -1


def test_what_is_not_shown_has_its_power():
    """Differences 3, -1, 1 and 1: mean 1, deviation 1.633, effect 0.61."""
    found = paired_t_test([3, 0, 1, 2], [0, 1, 0, 1])
    assert found.sign == 0 and found.interval[0] < 0 < found.interval[1]
    deviation = math.sqrt(8 / 3)
    assert power(found.detectable / deviation, 4) == pytest.approx(0.8, abs=1e-6)
    assert power(1 / deviation, found.seeds_needed) >= 0.8 > power(1 / deviation, found.seeds_needed - 1)
    assert paired_t_test([0, 1, 0, 1], [3, 0, 1, 2]).seeds_needed is None  # the wrong direction


@pytest.mark.parametrize("effect, number", [(0.5, 34), (1.0, 10), (0.8, 15)])
def test_sample_sizes_are_those_of_the_textbook(effect, number):
    """Cohen 1988; G*Power: paired t test, two-sided 5 %, power 80 %."""
    assert seeds_needed(effect) == number
    assert detectable_effect(number) <= effect < detectable_effect(number - 1)


def test_effects_that_no_number_of_seeds_finds():
    assert seeds_needed(0.0) is seeds_needed(-1.0) is seeds_needed(0.01) is None


def test_one_seed_shows_nothing():
    found = paired_t_test([3.0], [1.0])
    assert (found.mean, found.interval, found.p, found.seeds_needed) == (2.0, None, None, None)
    assert found.sign == 0 and cells(found, CLAIM) == ("+2.0", "not shown")


@pytest.mark.parametrize("difference", [1.0, 0.0, -1.0])
def test_equal_differences_show_nothing(difference):
    """They have no variance that a t test could use."""
    found = paired_t_test([2.0 + difference] * 3, [2.0] * 3)
    assert (found.mean, found.interval, found.p, found.detectable, found.seeds_needed) == (difference, *[None] * 4)
    assert found.sign == 0 and cells(found, CLAIM) == (f"{difference:+.1f}", "not shown")
    assert cells(found, CONTROL) == (f"{difference:+.1f}", "no difference shown")


def test_scores_of_examples_are_exchanged_between_systems():
    """Of 8 differences of 1 only the 2 of 256 sign patterns with equal signs are as extreme: p = 2 / 256."""
    assert permutation_test([[1.0] * 8], [[0.0] * 8]) == (1, pytest.approx(2 / 256, abs=1e-9))
    assert permutation_test([[1, 0, 1, 0]], [[0, 1, 0, 1]]) == (0, 1)
    # two seeds: the mean of an example's scores
    assert permutation_test([[1, 1], [1, 1], [1, 3]], [[0, 0]] * 3) == (pytest.approx(4 / 3), 0.5)


def test_one_p_stands_for_differences_of_one_sign():
    assert over_examples({"de": (2.0, 0.01), "fr": (1.0, 0.2), "ru": (0.0, 1.0)}) == "1.0000"
    assert over_examples({"de": (-2.0, 0.01), "fr": (-1.0, 0.02)}) == "0.0200"
    assert over_examples({"de": (-2.0, 0.01), "fr": (1.0, 0.2)}) == "mixed: above in fr; below in de"
    assert over_examples({}) == ""


def test_cells_name_what_it_takes_where_nothing_is_shown():
    found = paired_t_test([3, 0, 1, 2], [0, 1, 0, 1])
    mean, conclusion = cells(found, CLAIM)
    assert mean.startswith("+1.0 (-1.")
    assert conclusion == f"not shown (detectable: {found.detectable:.1f} with 4 seeds, 1.0 with {found.seeds_needed})"
    assert cells(paired_t_test(BETTER, WORSE), CLAIM)[1] == "shown"
