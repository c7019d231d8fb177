"""Scores of sentence retrieval from vectors. Shapes: N source sentences, M target sentences, C channels."""

import numpy as np

from fairseq_xl.evaluation.bootstrap import accuracy

NEIGHBOURS = 4  # of the margin (Artetxe & Schwenk 2019)


def cosine(source, target):
    """(N, C) and (M, C) -> (N, M); a vector of zeros is similar to nothing."""
    unit = [side / np.maximum(np.linalg.norm(side, axis=1, keepdims=True), 1e-12) for side in (source, target)]
    return unit[0] @ unit[1].T


def margin(similarity, neighbours=NEIGHBOURS):
    """Similarities (N, M) -> ratio margin (N, M) of Artetxe & Schwenk (2019, eq. 1 and 2).

    The similarity over the mean of both sentences' mean similarity to their `neighbours` nearest ones: sentences that
    are near to everything score lower. Where that mean is not above 0, which only sentences that are similar to nothing
    have, the ratio says nothing and is -inf.
    """

    def nearest(axis):
        kept = min(neighbours, similarity.shape[axis])
        return np.partition(similarity, -kept, axis).take(range(-kept, 0), axis).mean(axis, keepdims=True)

    neighbourhood = (nearest(1) + nearest(0)) / 2
    ratio = np.full_like(neighbourhood, -np.inf)
    return np.divide(similarity, neighbourhood, out=ratio, where=neighbourhood > 0)


def evaluate(source, target):
    """Vectors of n pairs, (n, C) each -> {score: {direction: {"accuracy", "interval"}}}, in per cent.

    score: `cosine` or `margin`; direction: `forward` finds the target of each source, `backward` the source of each
    target.
    """
    similarity = cosine(source, target)
    truth = np.arange(len(similarity))
    return {
        name: {
            "forward": accuracy(scores.argmax(1) == truth),
            "backward": accuracy(scores.argmax(0) == truth),
        }
        for name, scores in (("cosine", similarity), ("margin", margin(similarity)))
    }
