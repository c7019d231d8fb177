"""Bits per token of n-gram models: baselines for the loss of a masked language model.

Each model is an interpolation of relative frequencies (Jelinek & Mercer 1980), with weights that depend on how often
the neighbors occur (Chen & Goodman 1999, section 2.4). N tokens, K components, V symbols.
"""

from collections.abc import Sequence

import numpy as np

LEFT, RIGHT = -1, 1
#: model -> the neighbors of a token that it is predicted from
MODELS: dict[str, tuple[int, ...]] = {"unigram": (), "bigram": (LEFT,), "both neighbors": (LEFT, RIGHT)}
HELD_OUT = 10  # every tenth line is held out to estimate the weights
BUCKETS = 12  # of counts of a neighbor: 0, 1, 2-3, 4-7, ...
ITERATIONS = 30  # of expectation maximization


class Counts:
    """Counts of tokens and of adjacent pairs in a text (N,), which begins and ends with the end-of-line symbol."""

    def __init__(self, tokens: np.ndarray, symbols: int) -> None:
        self.symbols = symbols
        self.single = np.bincount(tokens, minlength=symbols)
        self.codes, self.pairs = np.unique(tokens[:-1].astype(np.int64) * symbols + tokens[1:], return_counts=True)

    def pair_counts(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Returns the counts (N,) of the token pairs (first, second) in the text."""
        codes = first.astype(np.int64) * self.symbols + second
        index = np.searchsorted(self.codes, codes).clip(max=len(self.codes) - 1)
        return np.where(self.codes[index] == codes, self.pairs[index], 0)


def components(
    counts: Counts, pieces: np.ndarray, text: np.ndarray, positions: np.ndarray, neighbors: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of the tokens at `positions` by each component, (N, K), and the bucket of each token, (N,).

    Components: uniform over the pieces, their relative frequency, and their relative frequency beside each neighbor.
    """
    tokens = text[positions]
    total = counts.single[pieces].sum()
    columns = [np.full(len(positions), 1 / len(pieces)), counts.single[tokens] / total]
    bucket = np.zeros(len(positions), dtype=np.int64)
    for side in neighbors:
        beside = text[positions + side]
        pairs = counts.pair_counts(beside, tokens) if side == LEFT else counts.pair_counts(tokens, beside)
        often = counts.single[beside]
        columns.append(pairs / np.maximum(often, 1))
        bucket = bucket * BUCKETS + np.ceil(np.log2(often + 1)).astype(np.int64).clip(max=BUCKETS - 1)
    return np.stack(columns, axis=1), bucket


def interpolate(shares: np.ndarray, bucket: np.ndarray, buckets: int) -> np.ndarray:
    """Weights (buckets, K) that maximize the likelihood of tokens with these component probabilities (N, K)."""
    count = shares.shape[1]
    weights = np.full((buckets, count), 1 / count)
    for _ in range(ITERATIONS):
        posterior = weights[bucket] * shares
        posterior /= posterior.sum(axis=1, keepdims=True)
        sums = np.stack([np.bincount(bucket, column, minlength=buckets) for column in posterior.T], axis=1)
        weights = (sums + 1 / count) / (sums.sum(axis=1, keepdims=True) + 1)
    return weights


def flat(lines: Sequence[np.ndarray], end: int) -> np.ndarray:
    """Joins lines that end with the symbol `end`, and adds one `end` in front."""
    return np.concatenate([np.array([end]), *lines]).astype(np.int64)


class Model:
    """Interpolated relative frequencies in lines of ids below `symbols` with `end`, to predict ids of `predicted`."""

    def __init__(self, train: Sequence[np.ndarray], predicted: np.ndarray, symbols: int, end: int) -> None:
        self.predicted = predicted
        self.held_out = flat(train[::HELD_OUT], end)
        self.rest = Counts(flat([line for index, line in enumerate(train) if index % HELD_OUT], end), symbols)
        self.counts = Counts(flat(train, end), symbols)
        self.held_out_positions = np.flatnonzero(np.isin(self.held_out[1:], predicted)) + 1

    def probabilities(self, text: np.ndarray, positions: np.ndarray, neighbors: Sequence[int]) -> np.ndarray:
        """Probabilities (N,) of the tokens at `positions` (N,) of a `flat` text, given their neighbors."""
        estimated = components(self.rest, self.predicted, self.held_out, self.held_out_positions, neighbors)
        weights = interpolate(*estimated, BUCKETS ** len(neighbors))
        shares, bucket = components(self.counts, self.predicted, text, positions, neighbors)
        return (weights[bucket] * shares).sum(axis=1)


def bits(
    train: Sequence[np.ndarray], pieces: np.ndarray, symbols: int, end: int, text: np.ndarray, positions: np.ndarray
) -> dict[str, float]:
    """Mean -log2 probability of `pieces` at `positions` of a `flat` text (N,), by each of `MODELS`; see `Model`."""
    model = Model(train, pieces, symbols, end)
    probabilities = {name: model.probabilities(text, positions, neighbors) for name, neighbors in MODELS.items()}
    return {name: float(-np.log2(values).mean()) for name, values in probabilities.items()}
