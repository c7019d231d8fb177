"""Random numbers by key: a published generator, uniform, independent, and the same in any batch."""

import numpy as np
import pytest

from fairseq_xl.data.noise import randomness
from fairseq_xl.data.noise.randomness import uniforms

GAMMA, WORD = 0x9E3779B97F4A7C15, 2**64 - 1
KEYS = np.random.default_rng(7).integers(2**64, size=400, dtype=np.uint64)


def mix(z):
    """The output function of SplitMix64 on Python's integers."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
    return z ^ (z >> 31)


def splitmix64(state, count):
    return [mix((state + step * GAMMA) & WORD) for step in range(1, count + 1)]


def test_the_reference_is_splitmix64():
    """The first outputs for seed 0 that other implementations publish."""
    assert splitmix64(0, 3) == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_purposes_keep_their_numbers():
    """With other numbers the noise of a run changes, and a resumed run differs."""
    found = {name: value for name, value in vars(randomness).items() if name.isupper() and not name.startswith("_")}
    assert found == {
        **dict(ROUNDING=0, POSITION=1, ACTION=2, WORD=3),
        **dict(DISTANCE=4, DROP=5, BUDGET=6, LENGTH=7, PLACE=8, BEGINNING=9),
        **dict(NEGATIVE_SENTENCE=7, NEGATIVE_SEGMENT=8, WINDOW=9),
        **dict(SOURCE_LANGUAGE=10),
    }


@pytest.mark.parametrize("key", [0, 1, 20190122, 2**64 - 1])
@pytest.mark.parametrize("purpose", [0, 3])
def test_numbers_are_those_of_splitmix64_seeded_by_key_and_purpose(key, purpose):
    seed = mix((mix((key + GAMMA) & WORD) + (purpose + 1) * GAMMA) & WORD)
    expected = [(bits >> 11) / 2**53 for bits in splitmix64(seed, 5)]
    assert uniforms(np.array([key], dtype=np.uint64), 5, purpose).tolist() == [expected]


def test_numbers_are_uniform():
    numbers = uniforms(KEYS, 500, 1).ravel()  # 200 000: the mean's deviation is 0.00065, the variance's 0.00017
    assert numbers.min() >= 0 and numbers.max() < 1
    assert abs(numbers.mean() - 1 / 2) < 0.003
    assert abs(numbers.var() - 1 / 12) < 0.001
    counts = np.histogram(numbers, bins=100, range=(0, 1))[0]
    assert ((counts - 2000) ** 2 / 2000).sum() < 160  # chi-square, 99 degrees of freedom: above in 1 of 10 000 cases


@pytest.mark.parametrize("other", ["purpose", "key", "position"])
def test_numbers_are_independent(other):
    one = uniforms(KEYS, 501, 1)
    two = {
        "purpose": uniforms(KEYS, 501, 2),
        "key": uniforms(KEYS + np.uint64(1), 501, 1),
        "position": np.roll(one, 1, axis=1),
    }[other]
    one, two = one[:, 1:].ravel(), two[:, 1:].ravel()
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.01  # deviation 0.0022
    cells = np.histogram2d(one, two, bins=10, range=[(0, 1), (0, 1)])[0]
    assert ((cells - 2000) ** 2 / 2000).sum() < 160


def test_keys_that_follow_each_other_are_as_good_as_random_ones():
    numbers = uniforms(np.arange(100_000, dtype=np.uint64), 1, 0)[:, 0]
    counts = np.histogram(numbers, bins=100, range=(0, 1))[0]
    assert ((counts - 1000) ** 2 / 1000).sum() < 160


def test_the_same_numbers_whatever_the_batch_and_the_length():
    whole = uniforms(KEYS[:6], 9, 2)
    assert np.array_equal(uniforms(KEYS[3:4], 9, 2), whole[3:4])
    assert np.array_equal(uniforms(KEYS[:6][::-1], 9, 2), whole[::-1])
    assert np.array_equal(uniforms(KEYS[:6], 4, 2), whole[:, :4])
