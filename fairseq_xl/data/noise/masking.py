"""Masking as pure functions over padded batches. B examples, T positions."""

import numpy as np

from fairseq_xl.data.noise.randomness import ACTION, POSITION, ROUNDING, WORD, uniforms


def choose_positions(
    allowed: np.ndarray, keys: np.ndarray, share: float, weights: np.ndarray | None = None
) -> np.ndarray:
    """Samples a share of the `allowed` positions (B, T) of each row without replacement: (B, T) bool.

    Of n allowed positions, share·n are chosen, rounded at random so that the expectation is exact (Lample & Conneau
    2019, section 3.3). With `weights` (B, T), each next position is chosen with probability proportional to its weight
    (Efraimidis & Spirakis 2006). `keys` are those of the examples, (B,) uint64.
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
    """Samples a span of `length` positions in each block of `block_size` allowed ones (Liang et al. 2020, section 6.1).

    The start of a span is uniform in its block. Positions that are not allowed do not count: a span continues behind
    them. If the last block of a row has only n < `block_size` positions, its span has length·n/block_size of them,
    rounded at random so that the expected share of selected positions is exactly length/block_size.

    From `allowed` (B, T) bool and the keys of the examples (B,) uint64 -> (B, T) bool.
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
    """Replaces `selected` tokens (B, T) by `<mask>` (80 %) or a random piece (10 %), as BERT does; 10 % stay.

    `keys` are those of the examples, (B,) uint64; random pieces are sampled from the ids `pieces` (P,). Returns a new
    array.
    """
    action = uniforms(keys, tokens.shape[1], ACTION)
    word = pieces[(uniforms(keys, tokens.shape[1], WORD) * len(pieces)).astype(np.int64)]
    masked = np.where(selected & (action < mask_share), mask_index, tokens)
    return np.where(selected & (action >= mask_share) & (action < mask_share + random_share), word, masked)
