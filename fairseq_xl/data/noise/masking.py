"""Masking as pure functions over padded batches. B examples, T positions."""

import numpy as np

from fairseq_xl.data.noise.randomness import ACTION, POSITION, ROUNDING, WORD, uniforms


def choose_positions(
    allowed: np.ndarray, keys: np.ndarray, share: float, weights: np.ndarray | None = None
) -> np.ndarray:
    """Samples a share of the allowed positions of each row without replacement (Lample & Conneau 2019, section 3.3).

    Of n allowed positions, share·n are chosen, rounded at random so that the expectation is exact. With weights, each
    next position is chosen with probability proportional to its weight (Efraimidis & Spirakis 2006).

    Args:
        allowed: (B, T) bool.
        keys: (B,) uint64 keys of the examples.
        share: fraction of the allowed positions.
        weights: (B, T) positive weights, or None for equal ones.

    Returns: (B, T) bool.
    """
    batch, time = allowed.shape
    budgets = np.floor(share * allowed.sum(1) + uniforms(keys, 1, ROUNDING)[:, 0])
    arrival = -np.log1p(-uniforms(keys, time, POSITION))
    if weights is not None:
        arrival = arrival / weights
    arrival = np.where(allowed, arrival, np.inf)
    rank = np.empty((batch, time), dtype=np.int64)
    np.put_along_axis(rank, np.argsort(arrival, axis=1), np.arange(time)[None, :], axis=1)
    return rank < budgets[:, None]


def choose_spans(allowed: np.ndarray, keys: np.ndarray, block_size: int, length: int) -> np.ndarray:
    """Samples a span of `length` positions in each block of `block_size` allowed ones (Liang et al. 2020, section 4.2).

    The start of a span is uniform in its block. Positions that are not allowed do not count: a span continues behind
    them. If the last block of a row has only n < `block_size` positions, its span has length·n/block_size of them,
    rounded at random so that the expected share of selected positions is exactly length/block_size.

    Args:
        allowed: (B, T) bool.
        keys: (B,) uint64 keys of the examples.

    Returns: (B, T) bool.
    """
    blocks = -(-allowed.shape[1] // block_size)
    sizes = (allowed.sum(1, keepdims=True) - block_size * np.arange(blocks)).clip(0, block_size)  # (B, blocks)
    lengths = np.floor(length * sizes / block_size + uniforms(keys, blocks, ROUNDING))
    starts = np.floor((sizes - lengths + 1) * uniforms(keys, blocks, POSITION))
    block, offset = np.divmod((allowed.cumsum(1) - 1).clip(0), block_size)  # (B, T)
    start, end = (np.take_along_axis(values, block, axis=1) for values in (starts, starts + lengths))
    return allowed & (offset >= start) & (offset < end)


def corrupt(
    tokens: np.ndarray,
    selected: np.ndarray,
    keys: np.ndarray,
    mask_index: int,
    pieces: np.ndarray,
    mask_share: float = 0.8,
    random_share: float = 0.1,
) -> np.ndarray:
    """Replaces selected tokens by `<mask>` (80 %) or a random piece (10 %), as BERT does; 10 % stay.

    Args:
        tokens: (B, T) integers, unchanged.
        selected: (B, T) bool.
        keys: (B,) uint64 keys of the examples.
        mask_index: index of `<mask>`.
        pieces: (P,) ids that random pieces are sampled from.

    Returns: a new array (B, T).
    """
    action = uniforms(keys, tokens.shape[1], ACTION)
    word = pieces[(uniforms(keys, tokens.shape[1], WORD) * len(pieces)).astype(np.int64)]
    masked = np.where(selected & (action < mask_share), mask_index, tokens)
    return np.where(selected & (action >= mask_share) & (action < mask_share + random_share), word, masked)
