"""Accuracy and macro-F1 of prediction files, and McNemar's test of two classifiers."""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_xl.errors import UserError, quoted
from fairseq_xl.evaluation.bootstrap import accuracy
from fairseq_xl.io.lines import read_lines

UNLABELED = "_"  # label of text whose label is unknown: it can be predicted, and has no loss and no score


class UnlabeledError(UserError):
    """Predictions of text without labels, which cannot be scored."""


def read_rows(path: str | Path) -> list[list[str]]:
    """(line, label, prediction, probability) of each line of a prediction file; `UserError` for another form."""
    rows = [line.split("\t") for line in read_lines(path)]
    for line, row in enumerate(rows, start=1):
        if len(row) != 4 or row[0] != str(line) or not all(row) or not 0 <= parse_number(row[3]) <= 1:
            raise UserError(f"{path}, line {line}: expected {line} TAB label TAB prediction TAB probability")
    if not rows:
        raise UserError(f"{path} holds no predictions")
    labels, predictions = ({row[column] for row in rows} - {UNLABELED} for column in (1, 2))
    if (
        labels
        and all(math.isfinite(parse_number(name)) for name in predictions)
        and not any(math.isfinite(parse_number(name)) for name in labels)
    ):
        raise UserError(
            f"{path}: expected classes, as the labels are, found numbers, {quoted(rows[0][2])} for "
            f"{quoted(rows[0][1])}: is it of a ranking?"
        )
    return rows


def parse_number(text: str) -> float:
    """The number in a text; NaN for other text."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def read_predictions(path: str | Path) -> tuple[list[str], list[str]]:
    """Labels and predictions of a file; `UnlabeledError` if no line has a label, `UserError` if only some have one."""
    rows = read_rows(path)
    unlabeled = [row[0] for row in rows if row[1] == UNLABELED]
    if len(unlabeled) == len(rows):
        raise UnlabeledError(f"{path} has predictions of text without labels ({UNLABELED}), which cannot be scored")
    if unlabeled:
        raise UserError(f"{path}, line {unlabeled[0]}: no label, but {len(rows) - len(unlabeled)} other lines have one")
    return [row[1] for row in rows], [row[2] for row in rows]


def score(labels: Sequence[str], predictions: Sequence[str]) -> dict[str, Any]:
    """Accuracy with its interval, macro-F1, and the shares of the most frequent label and the most predicted one.

    All in percent; macro-F1 is over all classes that occur. `majority` is the accuracy of always predicting the most
    frequent label. `most_predicted` near 100 means that the model has collapsed.
    """
    from sklearn.metrics import f1_score

    measured = accuracy([label == predicted for label, predicted in zip(labels, predictions)])
    shares = [100 * Counter(names).most_common(1)[0][1] / len(names) for names in (labels, predictions)]
    return {
        **{"n": len(labels), "accuracy": measured["accuracy"], "accuracy_interval": measured["interval"]},
        "macro_f1": round(100 * float(f1_score(labels, predictions, average="macro")), 2),
        **{"majority": round(shares[0], 2), "most_predicted": round(shares[1], 2)},
    }


def mcnemar(right: np.ndarray, baseline: np.ndarray) -> dict[str, Any]:
    """McNemar's exact test of the accuracies of two classifiers; arguments (n,) bool: item answered correctly.

    If accuracies are equal, an item that only one classifier answers correctly is equally likely to be either's: `p` is
    two-sided, from the binomial distribution. The variation over training seeds is not tested.

    Returns: {"difference" in points, "only_here", "only_there": numbers of items, "p"}.
    """
    from scipy.stats import binomtest

    only_here, only_there = int(np.sum(right & ~baseline)), int(np.sum(baseline & ~right))
    p = float(binomtest(only_here, only_here + only_there).pvalue) if only_here + only_there else 1.0
    difference = round(100 * (only_here - only_there) / len(right), 2)
    return {"difference": difference, "only_here": only_here, "only_there": only_there, "p": float(f"{p:.3g}")}


def compare(first: str | Path, second: str | Path) -> dict[str, Any]:
    """`mcnemar` of two prediction files of the same items; raises `UserError` if their labels differ."""
    (labels, predictions), (second_labels, second_predictions) = read_predictions(first), read_predictions(second)
    if labels != second_labels:
        raise UserError(f"{first} and {second} are of different items: their labels differ")
    return mcnemar(*(np.equal(labels, answers) for answers in (predictions, second_predictions)))
