"""Test pairs and scores of sentence retrieval. Shapes: N source sentences, M target sentences, C channels."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_xl.errors import UserError, language_pair, named_values
from fairseq_xl.evaluation.bootstrap import accuracy
from fairseq_xl.io.files import write_lines
from fairseq_xl.io.lines import read_lines
from fairseq_xl.io.text import text_of_line

logger = logging.getLogger(__name__)

NEIGHBORS = 4  # of the margin (Artetxe & Schwenk 2019)


def cosine(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Cosines (N, M) of rows (N, C) and (M, C); 0 for a row of zeros."""
    return unit_length(source) @ unit_length(target).T


def unit_length(rows: np.ndarray) -> np.ndarray:
    """Rows (N, C) -> rows of length 1; a row of zeros is unchanged."""
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def margin(similarity: np.ndarray, neighbors: int = NEIGHBORS) -> np.ndarray:
    """Similarities (N, M) -> ratio margin (N, M) to `neighbors` nearest ones (Artetxe & Schwenk 2019, eq. 1 and 2)."""

    def nearest(axis: int) -> np.ndarray:
        count = min(neighbors, similarity.shape[axis])
        return np.partition(similarity, -count, axis).take(range(-count, 0), axis).mean(axis, keepdims=True)

    return ratio(similarity, (nearest(1) + nearest(0)) / 2)


def ratio(similarity: np.ndarray, neighborhood: np.ndarray) -> np.ndarray:
    """Ratio margin from similarities and the means of their neighborhoods; -inf for a mean that is not above 0."""
    return np.divide(similarity, neighborhood, out=np.full_like(neighborhood, -np.inf), where=neighborhood > 0)


def best_matches(similarity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Similarities (N, M) -> (N,) the best target of each source by margin, and (M,) the best source of each target."""
    scores = margin(similarity)
    return scores.argmax(1), scores.argmax(0)


def write_best_matches(similarity: np.ndarray, path: str | Path) -> None:
    """Writes the `best_matches` of n pairs (n, n), a line for each pair, ``pair TAB target TAB source``, from 1 on."""
    rows = 1 + np.stack([np.arange(len(similarity)), *best_matches(similarity)], axis=1)
    write_lines(Path(path), ("\t".join(map(str, row)) for row in rows))


def evaluate_similarity(similarity: np.ndarray) -> dict[str, dict[str, Any]]:
    """Similarities of n pairs (n, n) -> {score: {direction: {"accuracy", "interval"}}}, in percent.

    score: `cosine`, by the similarity as it is, or `margin`; direction: `forward` finds the target of each source,
    `backward` the source of each target.
    """
    truth = np.arange(len(similarity))
    return {
        name: {"forward": accuracy(scores.argmax(1) == truth), "backward": accuracy(scores.argmax(0) == truth)}
        for name, scores in (("cosine", similarity), ("margin", margin(similarity)))
    }


def read_pairs(prefix: str | Path, source: str, target: str) -> list[list[str]]:
    """Reads PREFIX.source and PREFIX.target, without lines that are empty or repeated on a side: two lists.

    Raises `UserError` for missing files, different numbers of lines, or fewer than two pairs.
    """
    sides = [read_lines(f"{prefix}.{language}") for language in (source, target)]
    if len(sides[0]) != len(sides[1]):
        raise UserError(f"{prefix}: {len(sides[0])} lines of {source!r} but {len(sides[1])} of {target!r}")
    pairs, seen = [], (set(), set())
    for pair in zip(*(map(text_of_line, side) for side in sides)):
        if all(pair) and not any(sentence in sentences for sentence, sentences in zip(pair, seen)):
            pairs.append(pair)
        for sentence, sentences in zip(pair, seen):
            sentences.add(sentence)
    if len(pairs) < 2:
        raise UserError(f"{prefix}: retrieval needs at least two different pairs of sentences, found {len(pairs)}")
    lines, left_out = len(sides[0]), len(sides[0]) - len(pairs)
    if left_out:
        logger.info("%s: %d of %d lines are empty or repeated and left out", prefix, left_out, lines)
    return [list(side) for side in zip(*pairs)]


def read_named_pairs(arguments: Sequence[str]) -> dict[str, list[list[str]]]:
    """Arguments XX-YY=PREFIX -> {"XX-YY": the two lists of `read_pairs`}."""
    expected = "XX-YY=PREFIX for the files PREFIX.XX and PREFIX.YY"
    return {
        pair: read_pairs(prefix, *language_pair(f"{pair}={prefix}", pair))
        for pair, prefix in named_values("", arguments, expected).items()
    }


def averages(results: Mapping[str, Any]) -> dict[str, float]:
    """Mean accuracies over pairs and both directions, in percent: {"cosine", "margin"}."""
    means = {}
    for score in ("cosine", "margin"):
        values = [direction["accuracy"] for entry in results.values() for direction in entry[score].values()]
        means[score] = round(sum(values) / len(values), 2)
    return means
