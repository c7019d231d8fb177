"""Sampling shares worked out by hand (X2, X6); permutations and passes without a list of all numbers."""

import itertools
import tracemalloc

import numpy as np
import pytest

from fairseq_xl.data.corpora import sampling
from fairseq_xl.data.corpora.sampling import draw_passes, permutation, smoothed_shares


@pytest.mark.parametrize(
    "counts, alpha, expected",
    [
        ([900, 100], 0.5, [0.75, 0.25]),  # sqrt(0.9) : sqrt(0.1) = 3 : 1
        ([160, 90, 10], 0.5, [0.5, 0.375, 0.125]),  # 4 : 3 : 1
        ([128, 1], 0.7, [29.857 / 30.857, 1 / 30.857]),  # 128^0.7 = 2^4.9 = 29.857
        ([6, 3, 1], 1, [0.6, 0.3, 0.1]),
        ([6, 3, 1], 0, [1 / 3, 1 / 3, 1 / 3]),
        ([5], 0.7, [1.0]),
        ([9, 1, 0], 0.5, [0.75, 0.25, 0]),  # without sentences no part, at alpha 0 neither
        ([9, 0], 0, [1, 0]),
    ],
)
def test_shares(counts, alpha, expected):
    assert smoothed_shares(counts, alpha) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("available", [1, 2, 3, 4, 5, 97, 100, 101, 1023, 5000])
def test_a_permutation_has_every_number_once(monkeypatch, available):
    """That of large numbers, too: a pass has no example twice."""
    for few in (0, 1 << 16):
        monkeypatch.setattr(sampling, "SMALL_PERMUTATION", few)
        found = permutation(np.random.default_rng(available), available)(np.arange(available))
        assert sorted(found.tolist()) == list(range(available))


def test_a_permutation_is_a_function_of_the_generator(monkeypatch):
    monkeypatch.setattr(sampling, "SMALL_PERMUTATION", 0)
    one, same, other = (permutation(np.random.default_rng(seed), 10**9) for seed in (3, 3, 4))
    places = np.array([0, 1, 5, 10**9 - 1])
    assert one(places).tolist() == same(places).tolist() != other(places).tolist()
    assert one(places[2:]).tolist() == one(places)[2:].tolist()


def test_numbers_are_uniform_at_every_position(monkeypatch):
    """Of 1,000 permutations of 50 numbers: each number as often as any other (20: deviation 4.4) at each position."""
    monkeypatch.setattr(sampling, "SMALL_PERMUTATION", 0)
    drawn = np.array([permutation(np.random.default_rng(seed), 50)(np.arange(50)) for seed in range(1000)])
    counts = np.array([np.bincount(column, minlength=50) for column in drawn.T])
    squares = ((counts - 20) ** 2 / 20).sum()
    assert squares == pytest.approx(49 * 49, abs=5 * (2 * 49 * 49) ** 0.5)  # chi-squared with 49² degrees of freedom
    following = np.array(
        [np.bincount((column - first) % 50, minlength=50) for first, column in itertools.pairwise(drawn.T)]
    )
    assert following[:, 0].sum() == 0 and following[:, 1:].sum(0).std() < 4 * (49 * 1000 / 49) ** 0.5


def test_parts_of_a_large_range_are_drawn_equally(monkeypatch):
    """20,000 of 6.4 billion numbers in a hundred parts: 200 each, deviation 14; neighbors are independent."""
    found = draw_passes(np.random.default_rng(1), 6_400_000_000, 20_000)
    counts = np.bincount(found // 64_000_000, minlength=100)
    assert len(set(found.tolist())) == 20_000 and ((counts - 200) ** 2 / 200).sum() < 99 + 5 * 198**0.5
    assert abs(np.corrcoef(found[:-1], found[1:])[0, 1]) < 5 / 20_000**0.5
    assert (found % 2).mean() == pytest.approx(0.5, abs=0.02) and (found % 3 == 0).mean() == pytest.approx(
        1 / 3, abs=0.02
    )


def test_drawing_takes_memory_for_what_is_drawn():
    tracemalloc.start()
    draw_passes(np.random.default_rng(1), 6_400_000_000, 1000, lambda numbers: numbers % 2 == 0, 0.5)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


@pytest.mark.parametrize("few", [0, 1 << 16])
def test_passes_over_the_usable_numbers(monkeypatch, few):
    """Of 30 numbers the ten multiples of three, in two passes and a half, whatever share is expected."""
    monkeypatch.setattr(sampling, "SMALL_PERMUTATION", few)
    found = [
        draw_passes(np.random.default_rng(5), 30, 25, lambda numbers: numbers % 3 == 0, share).tolist()
        for share in (1, 1 / 3, 0.01, 0)
    ]
    first, second, rest = found[0][:10], found[0][10:20], found[0][20:]
    assert sorted(first) == sorted(second) == list(range(0, 30, 3)) and first != second
    assert len(rest) == len(set(rest)) == 5
    assert found == [found[0]] * 4
