"""Order of training batches in which the ranks of a micro-step get batches of similar size.

The size of a batch is its number of tokens without padding, for which packed layers compute nothing
(`modules/packing.py`). n batches.
"""

import logging

import numpy as np

from fairseq_xl.data.corpus import Numbers

logger = logging.getLogger(__name__)

REORDERED_UPDATES = 64  # updates within which batches are reordered
#: number of size classes, of equal width from 0 to the largest size; batches of one class keep the order drawn
SIZE_CLASSES = 32


def balanced_order(
    sizes: Numbers,
    batches_per_update: int,
    rng: np.random.Generator,
    largest: int | None = None,
) -> Numbers:
    """Orders batches so that each update, and each micro-step within it, has batches of similar size.

    Each run of `REORDERED_UPDATES` updates is sorted by size class and cut into updates, which are then shuffled.
    Within an update batches stay sorted. Batches of one size class keep the order drawn, so that an update still mixes
    languages. n ranks with k micro-steps and one rank with n k micro-steps get the same batches in each update.

    Args:
        sizes: (n,) sizes of the batches in the order drawn.
        batches_per_update: number of ranks times micro-steps; with 1 the order stays as drawn.
        rng: shuffles the updates.
        largest: upper bound of the last size class; None: the largest of `sizes`.

    Returns: (n,) the positions of the batches in the order drawn. A partial update at the end stays as drawn.
    """
    order = np.arange(len(sizes))
    updates = order[: len(sizes) // batches_per_update * batches_per_update].reshape(-1, batches_per_update)
    if batches_per_update == 1 or not len(updates):
        return order
    classes = np.ceil(sizes * SIZE_CLASSES / (largest or sizes.max()))
    for begin in range(0, len(updates), REORDERED_UPDATES):
        window = updates[begin : begin + REORDERED_UPDATES]
        drawn = window.flatten()
        ranking = np.repeat(rng.permutation(len(window)), batches_per_update)  # of each position's update, by size
        reordered = np.empty_like(drawn)
        reordered[np.argsort(ranking, kind="stable")] = drawn[np.argsort(classes[drawn], kind="stable")]
        rows = reordered.reshape(window.shape)
        window[:] = np.take_along_axis(rows, np.argsort(classes[rows], axis=1, kind="stable"), axis=1)
    return order


def padding_share(tokens: Numbers, padded_tokens: Numbers) -> float:
    """Share of the tokens of batches that is padding, from their numbers without and with padding (n,)."""
    return float(1 - tokens.sum() / padded_tokens.sum())


def waiting_share(sizes: Numbers, world_size: int) -> float:
    """Estimated share of the ranks' time spent waiting for the largest batch of a micro-step.

    The estimate takes time as proportional to tokens without padding. Ranks without a batch in the last micro-step
    wait too.

    Args:
        sizes: (n,) tokens of the batches in the order in which they are dealt out to ranks.
        world_size: number of ranks.
    """
    largest = np.maximum.reduceat(sizes, np.arange(0, len(sizes), world_size))
    return float(1 - sizes.sum() / (world_size * largest.sum()))


def log_padding_and_waiting(
    epoch: int, ranks: int, drawn: Numbers | None, balanced: Numbers, padded_tokens: Numbers, sample: str = ""
) -> None:
    """Logs the shares of padding and of waiting in the batches of an epoch, as drawn and as the ranks get them.

    Args:
        drawn: (n,) tokens of the batches without padding, in the order drawn; None: they are not reordered.
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
    if ranks > 1 and drawn is not None:
        waiting += f" ({100 * waiting_share(drawn, ranks):.1f} % without reordering batches by size)"
    share = 100 * padding_share(balanced, padded_tokens)
    logger.info("batches of epoch %d: %.1f %% of the tokens are padding%s%s", epoch, share, waiting, sample)
