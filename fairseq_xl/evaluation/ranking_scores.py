"""Normalized discounted cumulative gain of ranked texts."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_xl.errors import UserError, quoted
from fairseq_xl.evaluation import bootstrap
from fairseq_xl.evaluation.classification_scores import UNLABELED, UnlabeledError
from fairseq_xl.io.lines import read_lines

GAINS = ("linear", "exponential")


def ndcg(relevance: Sequence[float], scores: Sequence[float] | np.ndarray, gain: str = "linear") -> float:
    """nDCG of one query's texts (Järvelin & Kekäläinen 2002), from 0 to 1; 0 if no text is relevant.

    The discount is log2(1 + rank), over all ranks. Texts of equal score share the mean of their gains, so that the
    order in the file does not matter (McSherry & Najork 2008). XGLUE's program calls the same function of scikit-learn.
    The gain is the relevance, 0 or more, or `exponential`, 2^relevance - 1 (Burges et al. 2005).
    """
    from sklearn.metrics import ndcg_score

    gains = np.asarray(relevance, dtype=float)
    if len(gains) == 1:  # scikit-learn refuses it
        return float(gains[0] > 0)
    return float(ndcg_score([2.0**gains - 1 if gain == "exponential" else gains], [scores]))


def read_rows(path: Any) -> list[tuple[int, str, float | None, float]]:
    """The lines of a prediction file, ``line TAB query TAB relevance TAB score``; an unknown relevance is None.

    Raises `UserError` that names file and line for a line of another form, and for a query whose lines are not
    together, as in two joined files or a file of another task; and unless there is one score for each line.
    """
    rows: list[tuple[int, str, float | None, float]] = []
    queries: set[str] = set()
    for line_number, text in enumerate(read_lines(path), start=1):
        fields = text.split("\t")
        try:
            number, query, relevance, value = fields
            row = (int(number), query, None if relevance == UNLABELED else float(relevance), float(value))
        except ValueError:
            raise UserError(f"{path}, line {line_number}: expected line TAB query TAB relevance TAB score") from None
        if not (math.isfinite(row[3]) and 0 <= (row[2] or 0) < math.inf):
            raise UserError(f"{path}, line {line_number}: expected a relevance of 0 or more and a finite score")
        if query in queries and query != rows[-1][1]:
            raise UserError(f"{path}, line {line_number}: lines of other queries separate those of {quoted(query)}")
        queries.add(query)
        rows.append(row)
    if not rows:
        raise UserError(f"{path} holds no predictions")
    for expected, line in enumerate(sorted(row[0] for row in rows), start=1):
        if line != expected:
            raise UserError(f"{path}: expected a score for each of the lines 1 to {len(rows)}, found line {line}")
    return rows


def read_scores(path: Any) -> dict[str, tuple[list[float], list[float]]]:
    """A prediction file -> {query: (relevances, scores)}; raises `UserError` also for texts without relevance."""
    queries: dict[str, tuple[list[float], list[float]]] = {}
    rows = read_rows(path)
    if all(relevance is None for _, _, relevance, _ in rows):
        raise UnlabeledError(f"{path} has predictions of texts without relevance ({UNLABELED}), which cannot be scored")
    for line, query, relevance, value in rows:
        if relevance is None:
            raise UserError(f"{path}, line {line}: no relevance, but other lines have one")
        relevances, scores = queries.setdefault(query, ([], []))
        relevances.append(relevance)
        scores.append(value)
    return queries


def score(queries: Iterable[tuple[list[float], list[float]]], path: Path, gain: str = "linear") -> dict[str, Any]:
    """nDCG in percent, with interval, over queries of two texts or more; `chance` is the nDCG of equal scores."""
    several = [(relevance, scores) for relevance, scores in queries if len(scores) > 1]
    if not several:
        raise UserError(f"{path}: no query has two texts to rank")
    measured = bootstrap.mean([100 * ndcg(relevance, scores, gain) for relevance, scores in several])
    chance = [100 * ndcg(relevance, [0.0] * len(scores), gain) for relevance, scores in several]
    return {
        **{"n": len(several), "ndcg": measured["score"], "ndcg_interval": measured["interval"]},
        **{"chance": round(float(np.mean(chance)), 2), "gain": gain},
    }
