"""Order of training batches in which the ranks of a micro-step get batches of similar size.

The size of a batch is its number of tokens without padding, for which packed layers compute nothing
(`modules/packing.py`). Legend: n batches, N examples.
"""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from fairseq_xl.data.corpus import Numbers

logger = logging.getLogger(__name__)

EXCHANGE_UPDATES = 64  # updates within which batches are exchanged
#: number of size classes, equal parts of the largest size; batches of one class keep the order drawn
SIZE_CLASSES = 32


def balanced_order(
    sizes: Numbers, batches_per_update: int, rng: np.random.Generator, largest: int | None = None
) -> Numbers:
    """Exchanges batches so that those of an update, and the neighbors in it, are of similar size.

    Within `EXCHANGE_UPDATES` updates the batches are sorted by size, neighbors go to the same update, and the updates
    are shuffled. The batches of an update are in the order of their sizes, so that a micro-step gets neighbors too.
    Batches of one size class (of `SIZE_CLASSES`) stay in the order drawn before the updates are shuffled, so that an
    update still mixes what has no influence on size. n ranks with k micro-steps and one rank with n k micro-steps get
    the same batches in each update.

    Args:
        sizes: (n,) sizes of the batches in the order drawn.
        batches_per_update: number of ranks times micro-steps; with 1 the order stays as drawn.
        rng: shuffles the updates.
        largest: size of the last size class; None: the largest of `sizes`.

    Returns: (n,) the positions of the batches in the order drawn. A partial update at the end stays as drawn.
    """
    order = np.arange(len(sizes))
    updates = order[: len(sizes) // batches_per_update * batches_per_update].reshape(-1, batches_per_update)
    if batches_per_update == 1 or not len(updates):
        return order
    classes = np.ceil(sizes * SIZE_CLASSES / (largest or sizes.max()))
    for begin in range(0, len(updates), EXCHANGE_UPDATES):
        exchanged = updates[begin : begin + EXCHANGE_UPDATES]
        by_size = exchanged.reshape(-1)[np.argsort(classes[exchanged.reshape(-1)], kind="stable")]
        exchanged[:] = by_size.reshape(exchanged.shape)[rng.permutation(len(exchanged))]
    return order


def token_counts(
    batches: Sequence[Any], lengths: Numbers, inputs: Numbers, longest: Numbers
) -> tuple[Numbers, Numbers]:
    """Numbers of tokens of batches without and with padding: (n,) each.

    Args:
        batches: the examples of each batch, at least one.
        lengths: (N,) tokens of each example, all its inputs together.
        inputs: (N,) number of inputs of each example.
        longest: (N, sides) tokens of the longest input of each example, on each side that is padded by itself.
    """
    counts = np.array([len(batch) for batch in batches])
    examples, begins = np.concatenate([np.asarray(batch) for batch in batches]), np.cumsum(counts) - counts
    padded = np.add.reduceat(inputs[examples], begins) * np.maximum.reduceat(longest[examples], begins).sum(axis=1)
    return np.add.reduceat(lengths[examples], begins), padded


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
    epoch: int, ranks: int, drawn: Numbers, balanced: Numbers, padded_tokens: Numbers, sample: str = ""
) -> None:
    """Logs the shares of padding and of waiting in the batches of an epoch, as drawn and as the ranks get them.

    Args:
        drawn, balanced: (n,) tokens of the batches without padding, in the order drawn and that of the epoch.
        padded_tokens: (n,) tokens with padding, in any order.
        sample: of which batches the numbers are, if not of all.
    """
    waiting = ""
    if ranks > 1:
        before, after = (100 * waiting_share(sizes, ranks) for sizes in (drawn, balanced))
        waiting = (
            f"; estimated from token counts, the {ranks} ranks wait {after:.1f} % of the time for the largest batch of "
            f"a micro-step ({before:.1f} % without exchanging batches by size)"
        )
    share = 100 * padding_share(balanced, padded_tokens)
    logger.info("batches of epoch %d: %.1f %% of the tokens are padding%s%s", epoch, share, waiting, sample)
