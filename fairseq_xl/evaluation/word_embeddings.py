"""Cosine and L2 distance of word translations, retrieval within a dictionary, and word similarity.

Lample & Conneau 2019, section 4.5.

n pairs of words, C channels.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from fairseq_xl.errors import UserError, quoted
from fairseq_xl.evaluation import bootstrap
from fairseq_xl.io.lines import read_lines
from fairseq_xl.io.text import is_blank

DECIMALS = 3
BLOCK = 1024  # rows of similarities in memory at a time


def read_dictionary(path: str) -> list[tuple[str, str]]:
    """The different pairs of words of a dictionary in MUSE's format: one a line, separated by a tab or a space."""
    pairs = []
    for line_number, line in enumerate(read_lines(path), start=1):
        words = [word.strip() for word in line.split("\t")] if "\t" in line else line.split()
        if len(words) != 2 or any(map(is_blank, words)):
            raise UserError(f"{path}, line {line_number}: expected two words separated by a tab, found {quoted(line)}")
        pairs.append((words[0], words[1]))
    return list(dict.fromkeys(pairs))


def read_similarities(path: str, gold: str) -> tuple[list[tuple[str, str]], list[float]]:
    """Word pairs ``word TAB word`` and ratings, a line each (Camacho-Collados et al. 2017: SemEval-2017, task 2)."""
    pairs = [tuple(line.split("\t")) for line in read_lines(path)]
    for line_number, pair in enumerate(pairs, start=1):
        if len(pair) != 2:
            raise UserError(f"{path}, line {line_number}: expected word TAB word, found {len(pair)} fields")
    ratings = []
    for line_number, line in enumerate(read_lines(gold), start=1):
        try:
            ratings.append(float(line))
        except ValueError:
            raise UserError(f"{gold}, line {line_number}: expected a number, found {quoted(line)}") from None
    if len(pairs) != len(ratings):
        raise UserError(f"{path} has {len(pairs)} lines, {gold} has {len(ratings)}")
    return [(pair[0], pair[1]) for pair in pairs], ratings


def cosines(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Cosines (n,) of rows (n, C); 0 for a row of zeros."""
    norms = np.linalg.norm(source, axis=1) * np.linalg.norm(target, axis=1)
    return (source * target).sum(axis=1) / np.maximum(norms, 1e-12)


def nearest_in_dictionary(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Marks the words (n, C) whose translation has the highest cosine of all n: (n,), 1 or 0; zeros find nothing."""
    source, target = (rows.astype(np.float64) for rows in (source, target))
    nonzero = source.any(axis=1)
    source, target = (x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12) for x in (source, target))
    highest = [(source[start : start + BLOCK] @ target.T).max(axis=1) for start in range(0, len(source), BLOCK)]
    return (nonzero & ((source * target).sum(axis=1) >= np.concatenate(highest) - 1e-9)).astype(np.float64)


def dictionary_scores(no_common_piece: np.ndarray, source: np.ndarray, target: np.ndarray) -> dict[str, Any]:
    """Scores n translation pairs (n, C), and as many random pairs of the same words.

    The scores are mean cosine, mean L2 distance, and the share of the pairs whose translation is the nearest of the
    dictionary's n translations by cosine: not MUSE's precision at 1, which searches the whole target vocabulary and
    accepts every translation of a word. In a joint vocabulary, words with a common piece are close in any embedding
    table; the entry `no_common_piece` is without them, by (n,) bool.
    """
    order = np.random.default_rng(1).permutation(len(source))
    shuffled = source[order], target[np.roll(order, 1)]  # rolled by one: no pair is kept
    scores: dict[str, Any] = {"n": len(source), "no_common_piece": {"n": int(no_common_piece.sum())}, "random": {}}
    measures: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
        "cosine": cosines,
        "l2": lambda source, target: np.linalg.norm(source - target, axis=1),
        "nearest_in_dictionary": nearest_in_dictionary,
    }
    for name, measure in measures.items():
        values = measure(source, target)
        scores[name] = bootstrap.mean(values, decimals=DECIMALS)
        scores["random"][name] = round(float(measure(*shuffled).mean()), DECIMALS)
        if no_common_piece.any():
            scores["no_common_piece"][name] = bootstrap.mean(values[no_common_piece], decimals=DECIMALS)
    return scores


def similarity_scores(source: np.ndarray, target: np.ndarray, ratings: Iterable[float]) -> dict[str, Any]:
    """Pearson's correlation, times 100, of the cosines of n pairs with their ratings."""
    return {"n": len(source)} | bootstrap.correlation(bootstrap.pearson, cosines(source, target), list(ratings))
