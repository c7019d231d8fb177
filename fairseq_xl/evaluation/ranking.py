"""Normalized discounted cumulative gain of ranked texts."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_xl.errors import UserError
from fairseq_xl.evaluation import bootstrap
from fairseq_xl.evaluation.bleu import read_lines
from fairseq_xl.evaluation.classification import UNLABELED

GAINS = ("linear", "exponential")


def ndcg(relevance: Sequence[float], scores: Sequence[float] | np.ndarray, gain: str = "linear") -> float:
    """nDCG of one query's texts (Järvelin & Kekäläinen 2002), from 0 to 1; 0 if no text is relevant.

    The discount is log2(1 + rank), over all ranks. Texts of equal score share the mean of their gains, so that the
    order in the file does not matter (McSherry & Najork 2008). With linear gains it is scikit-learn's `ndcg_score`,
    which XGLUE's program calls.

    Args:
        relevance: rating of each text, 0 or more.
        scores: predicted score of each text.
        gain: linear: the relevance; exponential: 2^relevance - 1 (Burges et al. 2005).
    """
    gains = np.asarray(relevance, dtype=float)
    if gain == "exponential":
        gains = 2.0**gains - 1
    discounts = 1 / np.log2(np.arange(len(gains)) + 2)
    best = float(np.sort(gains)[::-1] @ discounts)
    if not best:
        return 0.0
    _, group, size = np.unique(-np.asarray(scores, dtype=float), return_inverse=True, return_counts=True)
    mean_gain = np.bincount(group, weights=gains) / size
    return float(np.repeat(mean_gain, size) @ discounts) / best


def read_scores(path: Any) -> dict[str, tuple[list[float], list[float]]]:
    """A file of lines ``line TAB query TAB relevance TAB score``: {query: (relevances, scores)}.

    Raises `UserError` that names file and line for a line of another form.
    """
    queries: dict[str, tuple[list[float], list[float]]] = {}
    for number, line in enumerate(read_lines(path), start=1):
        fields = line.split("\t")
        if len(fields) == 4 and fields[2] == UNLABELED:
            raise UserError(f"{path} has predictions of texts without relevance ({UNLABELED}), which cannot be scored")
        try:
            _, query, *values = fields
            relevance, value = map(float, values)
        except ValueError:
            raise UserError(f"{path}, line {number}: expected line TAB query TAB relevance TAB score") from None
        if not (math.isfinite(value) and 0 <= relevance < math.inf):
            raise UserError(f"{path}, line {number}: expected a relevance of 0 or more and a finite score")
        of_query = queries.setdefault(query, ([], []))
        of_query[0].append(relevance)
        of_query[1].append(value)
    if not queries:
        raise UserError(f"{path} holds no predictions")
    return queries


def score(queries: Iterable[tuple[list[float], list[float]]], path: Path, gain: str = "linear") -> dict[str, Any]:
    """nDCG in percent with its 95 % interval over queries; `chance` is the nDCG of equal scores.

    Queries of a single text are left out, as in XGLUE's program.

    Args:
        queries: relevances and scores of each query.
        path: the file of the scores, for errors.
        gain: as in `ndcg`.
    """
    several = [(relevance, found) for relevance, found in queries if len(found) > 1]
    if not several:
        raise UserError(f"{path}: no query has two texts to rank")
    measured = bootstrap.mean([100 * ndcg(relevance, found, gain) for relevance, found in several])
    chance = [100 * ndcg(relevance, [0.0] * len(found), gain) for relevance, found in several]
    return {
        **{"n": len(several), "ndcg": measured["score"], "ndcg_interval": measured["interval"]},
        **{"chance": round(float(np.mean(chance)), 2), "gain": gain},
    }
