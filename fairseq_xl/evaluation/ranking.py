"""Normalized discounted cumulative gain of ranked texts."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fairseq_xl.errors import UserError
from fairseq_xl.evaluation import bootstrap
from fairseq_xl.evaluation.bleu import read_lines


def ndcg(relevance: Sequence[float], scores: Sequence[float] | np.ndarray) -> float | None:
    """nDCG of one query's texts (Järvelin & Kekäläinen 2002), from 0 to 1; None if no text is relevant.

    The gain is 2^relevance - 1, the discount log2(1 + rank) (Burges et al. 2005), over all ranks. Texts of equal score
    share the mean of their gains, so that the order in the file does not matter (McSherry & Najork 2008).

    Args:
        relevance: rating of each text, 0 or more.
        scores: predicted score of each text.
    """
    gains = 2.0 ** np.asarray(relevance, dtype=float) - 1
    discounts = 1 / np.log2(np.arange(len(gains)) + 2)
    best = float(np.sort(gains)[::-1] @ discounts)
    if not best:
        return None
    _, group, size = np.unique(-np.asarray(scores, dtype=float), return_inverse=True, return_counts=True)
    mean_gain = np.bincount(group, weights=gains) / size
    return float(np.repeat(mean_gain, size) @ discounts) / best


def read_scores(path: Any) -> dict[str, tuple[list[float], list[float]]]:
    """A file of lines ``line TAB query TAB relevance TAB score``: {query: (relevances, scores)}.

    Raises `UserError` that names file and line for another line.
    """
    queries: dict[str, tuple[list[float], list[float]]] = {}
    for number, line in enumerate(read_lines(path), start=1):
        try:
            _, query, *values = line.split("\t")
            relevance, value = map(float, values)
        except ValueError:
            raise UserError(f"{path}, line {number}: expected line TAB query TAB relevance TAB score") from None
        of_query = queries.setdefault(query, ([], []))
        of_query[0].append(relevance)
        of_query[1].append(value)
    if not queries:
        raise UserError(f"{path} holds no predictions")
    return queries


def score(queries: dict[str, tuple[list[float], list[float]]]) -> dict[str, Any]:
    """nDCG in percent with its 95 % interval over queries; `chance` is that of equal scores."""
    pairs = [(ndcg(relevance, found), ndcg(relevance, [0.0] * len(found))) for relevance, found in queries.values()]
    values = [(100 * ours, 100 * chance) for ours, chance in pairs if ours is not None and chance is not None]
    if not values:
        raise UserError("no query has a relevant text")
    measured = bootstrap.mean([ours for ours, _ in values])
    return {
        **{"n": len(values), "left_out": len(pairs) - len(values)},
        **{"ndcg": measured["score"], "ndcg_interval": measured["interval"]},
        "chance": round(float(np.mean([chance for _, chance in values])), 2),
    }
