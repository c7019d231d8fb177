"""Parallel sentences found in the text of two languages by their sentence embeddings (Artetxe & Schwenk 2019).

n source sentences, m target sentences, C channels, k neighbors. The command is `fairseq-xl mine-bitext`.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fairseq_xl.disk_index import nearest_approximately
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.bleu import read_lines
from fairseq_xl.evaluation.retrieval import NEIGHBORS, ratio
from fairseq_xl.nearest import BLOCK_VECTORS, Rows, Vectors, nearest

DIGITS = 4  # of scores that are printed


class Sentences(NamedTuple):
    """The sentences of a file and their ids."""

    ids: list[str]
    texts: list[str]
    lines: np.ndarray  # (n,) the line of each sentence, from 0 on
    total: int  # number of lines of the file
    path: str


class Pair(NamedTuple):
    """Two sentences, by their numbers, with their margin."""

    score: float
    source: int
    target: int


def read_sentences(path: str) -> Sentences:
    """Reads a sentence from each line, or ``id TAB sentence`` as BUCC has them, if most lines contain a tab.

    Without ids, sentences are named by their lines, from 0 on. Empty lines, which separate documents, and ids without a
    sentence are left out. Raises `UserError` for a missing or ill-encoded file, one without sentences, a line without
    id among those with one, and an id that occurs twice.
    """
    whole = read_lines(path)
    rows = [(str(number), line, number) for number, line in enumerate(whole) if line.strip()]
    if 2 * sum("\t" in line for _, line, _ in rows) > len(rows):
        for _, line, number in rows:
            if "\t" not in line:
                raise UserError(f"{path}, line {number + 1}: expected id TAB sentence, found {line[:40]!r}")
        parts = [(*line.split("\t", 1), number) for _, line, number in rows]
        rows = [(name, text, number) for name, text, number in parts if text.strip()]
        for name, times in Counter(name for name, *_ in rows).most_common(1):
            if times > 1:
                raise UserError(f"{path}: the id {name} occurs twice")
    if not rows:
        raise UserError(f"{path} holds no sentences")
    ids, texts, lines = map(list, zip(*rows))
    return Sentences(ids, texts, np.array(lines), len(whole), path)


def read_gold(path: str, sides: Sequence[Sentences]) -> set[tuple[int, int]]:
    """Reads pairs of ids as pairs of sentence numbers; raises `UserError` for an unknown id and for no pair."""
    numbers = [{name: number for number, name in enumerate(side.ids)} for side in sides]
    found = set()
    for number, line in enumerate(read_lines(path), start=1):
        names = line.split("\t")
        if len(names) != 2 or names[0] not in numbers[0] or names[1] not in numbers[1]:
            raise UserError(f"{path}, line {number}: expected two ids of the files, found {line[:40]!r}")
        found.add((numbers[0][names[0]], numbers[1][names[1]]))
    if not found:
        raise UserError(f"{path} holds no pairs")
    return found


def mine_texts(
    texts: tuple[Sequence[str], Sequence[str]],
    embeddings: Sequence[Vectors],
    neighbors: int = NEIGHBORS,
    folder: Path | None = None,
) -> list[Pair]:
    """Pairs of source and target sentences with embeddings (n, C) and (m, C), by `mine`.

    Sentences may occur several times: as in XTREME's program, copies are one neighbor, and a sentence with copies is in
    no pair, since its id is not known.
    """
    places: tuple[dict[str, list[int]], dict[str, list[int]]] = (defaultdict(list), defaultdict(list))
    for side, of_side in zip(texts, places):
        for number, text in enumerate(side):
            of_side[text].append(number)
    numbers = [list(of_side.values()) for of_side in places]
    first, second = (
        Rows(side, np.array([copies[0] for copies in of_side])) for side, of_side in zip(embeddings, numbers)
    )
    mined = mine(first, second, neighbors, folder=folder)
    found = ((each.score, numbers[0][each.source], numbers[1][each.target]) for each in mined)
    return [Pair(score, *one, *other) for score, one, other in found if len(one) == len(other) == 1]


def mine(
    source: Vectors, target: Vectors, neighbors: int = NEIGHBORS, block: int = BLOCK_VECTORS, folder: Path | None = None
) -> list[Pair]:
    """Pairs by ratio margin, in descending order; each sentence is in one pair at most.

    The margin is the cosine over the mean of both sentences' mean cosines to their `neighbors` nearest sentences (eq. 1
    and 2 of the paper). Pairs for which that mean is not above 0 are left out. The best candidate of each sentence in
    both directions is kept, and pairs are taken greedily. With a `folder` the search is approximate, with an index on
    the disk there (`fairseq_xl.disk_index`); otherwise it is exact.
    """
    if folder is None:
        forward, backward = nearest(source, target, neighbors, block), nearest(target, source, neighbors, block)
    else:
        forward = nearest_approximately(source, target, neighbors, folder / "target", block)
        backward = nearest_approximately(target, source, neighbors, folder / "source", block)
    means = forward[0].mean(1), backward[0].mean(1)
    candidates = {}
    for cosines, numbers, swapped in ((*forward, False), (*backward, True)):
        own, other = means[::-1] if swapped else means
        margins = ratio(cosines, (own[:, None] + other[numbers]) / 2)
        best = margins.argmax(1)
        for number, place in enumerate(best.tolist()):
            if margins[number, place] == -np.inf:
                continue
            pair = (number, int(numbers[number, place]))
            candidates[pair[::-1] if swapped else pair] = float(margins[number, place])
    taken: tuple[set[int], set[int]] = (set(), set())
    found = []
    for (first, second), score in sorted(candidates.items(), key=lambda item: (-item[1], item[0])):
        if first not in taken[0] and second not in taken[1]:
            found.append(Pair(score, first, second))
            taken[0].add(first)
            taken[1].add(second)
    return found


def best_threshold(pairs: Sequence[Pair], gold: set[tuple[int, int]]) -> dict[str, float]:
    """The margin at or above which pairs have the highest F1: the middle between the last of them and the next pair.

    Args:
        pairs: in descending order of their scores.
        gold: numbers of the sentences of correct pairs.

    Returns: {"threshold", and in percent "f1", "precision", "recall" of the pairs at or above it}.
    """
    best = {"threshold": float("inf"), "f1": 0.0, "precision": 0.0, "recall": 0.0}
    correct = 0
    for count, (pair, following) in enumerate(zip(pairs, [*pairs[1:], None]), start=1):
        correct += (pair.source, pair.target) in gold
        f1 = 200 * correct / (count + len(gold))
        if f1 > best["f1"] and (following is None or following.score < pair.score):
            best = {
                "threshold": pair.score if following is None else (pair.score + following.score) / 2,
                "f1": f1,
                "precision": 100 * correct / count,
                "recall": 100 * correct / len(gold),
            }
    return best


def rounded(scores: dict[str, float]) -> dict[str, float | None]:
    """Scores of `best_threshold` as they are printed, the threshold exactly; without a correct pair there is none."""
    threshold = scores["threshold"] if math.isfinite(scores["threshold"]) else None
    return {name: round(value, DIGITS) for name, value in scores.items()} | {"threshold": threshold}
