"""Shares of languages and pairs, and drawing without replacement. Imports neither torch nor fairseq."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairseq_xl.data import Numbers
from fairseq_xl.data.noise.randomness import mix

SMALL_PERMUTATION = 1 << 16  # numbers up to which a permutation is an array
ROUNDS = 6  # of the Feistel network
DRAWN = 1 << 20  # numbers that are drawn at a time


def smoothed_shares(counts: ArrayLike, alpha: float) -> np.ndarray:
    """q_i = p_i^α / Σ_j p_j^α with p_i = n_i / Σ n (Lample & Conneau 2019, section 3.1).

    (L,) counts -> (L,) shares that sum to 1; a count of 0 has the share 0.
    """
    counts = np.asarray(counts, dtype=np.float64)
    powered = (counts / counts.sum()) ** alpha
    powered[counts == 0] = 0
    return powered / powered.sum()


def permutation(rng: np.random.Generator, available: int) -> Callable[[Numbers], Numbers]:
    """A random permutation of the numbers below `available`: a function from positions (n,) to numbers (n,).

    For more than `SMALL_PERMUTATION` numbers it is a Feistel network (Luby & Rackoff 1988), which takes no memory: on
    the pairs (x, y) of numbers below side = ⌈√available⌉, each round is (x, y) -> (y, (x + hash(y)) mod side). A number
    that is too large goes through the network again.
    """
    if available <= SMALL_PERMUTATION:
        return rng.permutation(available).__getitem__
    keys, side = rng.integers(2**64, size=ROUNDS, dtype=np.uint64), np.uint64(math.isqrt(available - 1) + 1)

    def shuffled(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
        x, y = np.divmod(numbers, side)
        for key in keys:
            x, y = y, (x + mix(y ^ key) % side) % side
        return x * side + y

    def number_at(positions: Numbers) -> Numbers:
        numbers = shuffled(positions.astype(np.uint64))
        while len(outside := np.flatnonzero(numbers >= np.uint64(available))):
            numbers[outside] = shuffled(numbers[outside])
        return numbers.astype(np.int64)

    return number_at


def draw_passes(
    rng: np.random.Generator,
    available: int,
    count: int,
    usable: Callable[[Numbers], NDArray[np.bool_]] | None = None,
    share: float = 1,
) -> Numbers:
    """Random `count` of the numbers below `available`, (count,), each at most once in a pass over all of them.

    Args:
        usable: whether numbers (n,) may be drawn, (n,); None: all may.
        share: estimated share of usable numbers, 0 to 1. The result does not depend on it.

    Raises `LookupError` if no number is usable.
    """
    samples, remaining = [], count
    while remaining > 0:
        number_at, position = permutation(rng, available), 0
        while remaining > 0 and position < available:
            end = min(available, position + min(DRAWN, int(remaining / max(share, 1e-3)) + 16))
            numbers = number_at(np.arange(position, end))
            numbers = numbers if usable is None else numbers[usable(numbers)]
            samples.append(numbers[:remaining])
            remaining, position = remaining - len(samples[-1]), end
        if not any(map(len, samples)):
            raise LookupError("no number is usable")
    return np.concatenate(samples)
