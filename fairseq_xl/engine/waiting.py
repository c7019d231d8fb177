"""Logs the shares of padding and of waiting ranks in the n batches of an epoch."""

import logging

import numpy as np

logger = logging.getLogger(__name__)


def padding_share(tokens: np.ndarray, padded_tokens: np.ndarray) -> float:
    """Share of padding in batches, from their numbers of tokens without and with padding, (n,) each."""
    return float(1 - tokens.sum() / padded_tokens.sum())


def waiting_share(sizes: np.ndarray, world_size: int) -> float:
    """Estimated share of the ranks' time spent waiting for the largest batch of a micro-step.

    `sizes` (n,) are the tokens of the batches, without padding, in the order of the epoch; time is taken as
    proportional to them. Ranks without a batch in the last micro-step wait too.
    """
    largest = np.maximum.reduceat(sizes, np.arange(0, len(sizes), world_size))
    return float(1 - sizes.sum() / (world_size * largest.sum()))


def log_padding_and_waiting(
    epoch: int,
    ranks: int,
    unordered: np.ndarray | None,
    balanced: np.ndarray,
    padded_tokens: np.ndarray,
    sample: str = "",
) -> None:
    """Logs the shares of padding and of waiting in the batches of an epoch, before and after reordering by size.

    Args:
        unordered: (n,) tokens of the batches without padding, before reordering; None: they are not reordered.
        balanced: (n,) tokens without padding, in the order of the epoch.
        padded_tokens: (n,) tokens with padding, in any order.
        sample: end of the message, which names the batches counted; empty: all.
    """
    waiting = ""
    if ranks > 1:
        waiting = (
            f"; estimated from token counts, the {ranks} ranks wait {100 * waiting_share(balanced, ranks):.1f} % of "
            "the time for the largest batch of a micro-step"
        )
    if ranks > 1 and unordered is not None:
        waiting += f" ({100 * waiting_share(unordered, ranks):.1f} % without reordering batches by size)"
    share = 100 * padding_share(balanced, padded_tokens)
    logger.info("batches of epoch %d: %.1f %% of the tokens are padding%s%s", epoch, share, waiting, sample)
