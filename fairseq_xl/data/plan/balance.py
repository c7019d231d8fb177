"""Order of training batches in which the ranks of a micro-step get batches of similar size.

The size of a batch is its number of tokens without padding, for which packed layers compute nothing
(`modules/packing.py`). n batches.
"""

import numpy as np

from fairseq_xl.data import Numbers

REORDERED_UPDATES = 64  # updates within which batches are reordered
#: number of size classes, of equal width from 0 to the largest size; batches of one class keep the order drawn
SIZE_CLASSES = 32


def balanced_order(
    sizes: Numbers, batches_per_update: int, rng: np.random.Generator, largest: int | None = None
) -> Numbers:
    """Orders batches so that each update, and each micro-step within it, has batches of similar size.

    Each run of `REORDERED_UPDATES` updates is sorted by size class and cut into updates, which are then shuffled.
    Within an update batches stay sorted. Batches of one size class keep the order drawn, so that an update still mixes
    languages. n ranks with k micro-steps and one rank with n k micro-steps get the same batches in each update.

    Args:
        sizes: (n,) sizes of the batches in the order drawn.
        batches_per_update: number of ranks times micro-steps; with 1 the order stays as drawn.
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
        original = window.flatten()
        ranking = np.repeat(rng.permutation(len(window)), batches_per_update)  # of each position's update, by size
        reordered = np.empty_like(original)
        reordered[np.argsort(ranking, kind="stable")] = original[np.argsort(classes[original], kind="stable")]
        rows = reordered.reshape(window.shape)
        window[:] = np.take_along_axis(rows, np.argsort(classes[rows], axis=1, kind="stable"), axis=1)
    return order
