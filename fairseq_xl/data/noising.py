"""Noise as pure functions over padded batches. B draws, T positions, V symbols."""

import numpy as np

from fairseq_xl.data.randomness import uniforms

ROUNDING, POSITION, ACTION, WORD = range(4)


def choose_positions(
    allowed: np.ndarray, keys: np.ndarray, share: float, weights: np.ndarray | None = None
) -> np.ndarray:
    """Draws `share` of each row's allowed positions, without replacement (X5).

    A row with n allowed positions gets share·n of them, rounded at random so that the expectation is exact.
    With weights a position is taken with probability proportional to its weight at each single draw (the
    exponential race of Efraimidis & Spirakis 2006).

    Args:
        allowed: (B, T) bool.
        keys: (B,) uint64 keys of the draws.
        share: fraction of the allowed positions.
        weights: (B, T) positive weights, or None for equal ones.

    Returns: (B, T) bool.
    """
    batch, time = allowed.shape
    wanted = np.floor(share * allowed.sum(1) + uniforms(keys, 1, ROUNDING)[:, 0])
    arrival = -np.log1p(-uniforms(keys, time, POSITION))
    if weights is not None:
        arrival = arrival / weights
    arrival = np.where(allowed, arrival, np.inf)
    rank = np.empty((batch, time), dtype=np.int64)
    np.put_along_axis(rank, np.argsort(arrival, axis=1), np.arange(time)[None, :], axis=1)
    return rank < wanted[:, None]


def choose_spans(allowed: np.ndarray, keys: np.ndarray, every: int, length: int) -> np.ndarray:
    """Draws a span of `length` of every `every` allowed positions of each row, at a place drawn uniformly (G6).

    Allowed positions are counted without the others: a span goes on behind one that is not allowed. Where the last
    block of a row holds fewer than `every`, n, its span has length·n/every of them, rounded at random so that the
    expectation is exact: each row's share of chosen positions is length/every on average.

    Args:
        allowed: (B, T) bool.
        keys: (B,) uint64 keys of the draws.

    Returns: (B, T) bool.
    """
    blocks = -(-allowed.shape[1] // every)
    sizes = (allowed.sum(1, keepdims=True) - every * np.arange(blocks)).clip(0, every)  # (B, blocks)
    lengths = np.floor(length * sizes / every + uniforms(keys, blocks, ROUNDING))
    starts = np.floor((sizes - lengths + 1) * uniforms(keys, blocks, POSITION))
    block, place = np.divmod((allowed.cumsum(1) - 1).clip(0), every)  # (B, T)
    start, end = (np.take_along_axis(values, block, axis=1) for values in (starts, starts + lengths))
    return allowed & (place >= start) & (place < end)


def corrupt(
    tokens: np.ndarray,
    chosen: np.ndarray,
    keys: np.ndarray,
    mask_index: int,
    pieces: np.ndarray,
    mask_share: float = 0.8,
    random_share: float = 0.1,
) -> np.ndarray:
    """BERT's 80/10/10 at the chosen positions (X5): `<mask>`, a random piece, or the token as it was.

    Args:
        tokens: (B, T) integers, unchanged.
        chosen: (B, T) bool.
        keys: (B,) uint64 keys of the draws.
        mask_index: index of `<mask>`.
        pieces: indices that random words are drawn from.

    Returns: (B, T) a new array.
    """
    action = uniforms(keys, tokens.shape[1], ACTION)
    word = pieces[(uniforms(keys, tokens.shape[1], WORD) * len(pieces)).astype(np.int64)]
    noised = np.where(chosen & (action < mask_share), mask_index, tokens)
    return np.where(chosen & (action >= mask_share) & (action < mask_share + random_share), word, noised)
