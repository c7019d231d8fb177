"""Scores of one file for each language, with averages over a complete set of languages."""

import argparse
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from fairseq_xl.errors import UserError, names_of
from fairseq_xl.evaluation import bootstrap, prediction_folders
from fairseq_xl.evaluation.classification_scores import UnlabeledError

logger = logging.getLogger(__name__)


def score_languages(
    options: argparse.Namespace,
    task: str,
    suffix: str,
    score: Callable[[Path, str], dict[str, Any]],
    averaged: Iterable[str],
    metric: str,
) -> dict[str, Any]:
    """Scores the files ``SPLIT.LANGUAGE.suffix`` of a folder, predictions of a `task`, by `score(file, language)`.

    `options` has `folder`, `split` and `langs`; `averaged` scores are averaged if no language is missing; `metric` is
    the first part of the signature, such as "metric:accuracy".

    Returns: {"languages": {code: scores}, "missing": codes without a file or labels, "signature"} and the averages.
    Raises `UserError` if no language has a file, and for files of another task or that differ from the folder's note;
    `UnlabeledError` if no file has labels.
    """
    codes = names_of("--langs", options.langs)
    files = {code: Path(options.folder) / f"{options.split}.{code}.{suffix}" for code in codes}
    files = {code: path for code, path in files.items() if path.is_file()}
    for path in files.values():
        prediction_folders.check_predictions(path, [task])
    scores: dict[str, dict[str, Any]] = {}
    unlabeled: dict[str, UnlabeledError] = {}
    for code, path in files.items():
        try:
            scores[code] = score(path, code)
        except UnlabeledError as error:
            unlabeled[code] = error
    if unlabeled and not scores:
        raise next(iter(unlabeled.values()))
    if not scores:
        raise UserError(f"{options.folder}: no prediction file {options.split}.LANGUAGE.{suffix} of {options.langs}")
    result: dict[str, Any] = {"languages": scores, "missing": [code for code in codes if code not in scores]}
    if unlabeled:
        logger.warning("%s: no labels of %s, so there are no averages", options.folder, ", ".join(unlabeled))
    if missing := [code for code in codes if code not in files]:
        logger.warning("%s: no file of %s, so there are no averages", options.folder, ", ".join(missing))
    result["signature"] = bootstrap.signature(metric)
    if not result["missing"]:
        for name in averaged:
            result[name] = round(sum(entry[name] for entry in scores.values()) / len(scores), 2)
    return result
