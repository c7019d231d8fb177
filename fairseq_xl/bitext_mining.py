"""Parallel sentences found in the text of two languages by their sentence embeddings (Artetxe & Schwenk 2019).

n source sentences, m target sentences, C channels, k neighbors. The command is `fairseq-xl mine-bitext`. Where a
function has an argument `folder`, an existing one, all that grows with the number of sentences is in temporary files
there (`fairseq_xl.io.temporary_arrays`), and a full disk raises `OSError`; without it, all is in memory.
"""

import hashlib
import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fairseq_xl.disk_index import nearest_approximately
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.bleu import read_lines
from fairseq_xl.evaluation.retrieval import NEIGHBORS, ratio
from fairseq_xl.io.compressed import stored
from fairseq_xl.io.external_sort import in_order
from fairseq_xl.io.lines import read_buffers
from fairseq_xl.io.temporary_arrays import GrowingArray, GrowingStrings, Stored, records, slices, zeros
from fairseq_xl.nearest import BLOCK_VECTORS, Rows, Vectors, nearest

DIGITS = 4  # of scores that are printed
HASHED = np.dtype([("high", "<u8"), ("low", "<u8"), ("number", "<i8")])  # 128 bits of a hash, number of the string
BEST = np.dtype([("margin", "<f4"), ("number", "<i8")])  # of a sentence's candidate; -1: it has none
CANDIDATE = np.dtype([("order", "<f4"), ("source", "<i8"), ("target", "<i8")])  # order: -margin
PAIR = np.dtype([("score", "<f4"), ("source", "<i8"), ("target", "<i8")])


class Sentences(NamedTuple):
    """The n sentences of a file and their ids."""

    ids: Sequence[str]
    texts: Sequence[str]
    lines: np.ndarray  # (n,) the line of each sentence, from 0 on
    total: int  # number of lines of the file
    path: str


class Pair(NamedTuple):
    """Two sentences, by their numbers, with their margin."""

    score: float
    source: int
    target: int


def read_sentences(path: str, folder: Path | None = None) -> Sentences:
    """Reads a sentence from each line, or ``id TAB sentence`` as BUCC has them, if most lines contain a tab.

    Without ids, sentences are named by their lines, from 0 on. Empty lines, which separate documents, and ids without a
    sentence are left out. Raises `UserError` for a missing or ill-encoded file, one without sentences, a line without
    id among those with one, and an id that occurs twice.
    """
    strings, places, total, tabs = GrowingStrings(folder), GrowingArray(folder, np.int64), 0, 0
    for buffer in read_buffers(str(stored(path))):
        filled = [number for number, line in enumerate(buffer) if line.strip()]
        strings.extend([buffer[number] for number in filled])
        places.append(np.array(filled, np.int64) + total)
        tabs += sum("\t" in buffer[number] for number in filled)
        total += len(buffer)
    texts, lines = strings.finish(), places.finish()
    if 2 * tabs > len(texts):
        ids, texts, lines = _with_ids(path, texts, lines, folder)
    else:
        names = GrowingStrings(folder)
        for rows in slices(len(lines)):
            names.extend([str(number) for number in lines[rows].tolist()])
        ids = names.finish()
    if not texts:
        raise UserError(f"{path} holds no sentences")
    return Sentences(ids, texts, lines, total, path)


def _with_ids(
    path: str, rows: Sequence[str], places: np.ndarray, folder: Path | None
) -> tuple[Sequence[str], Sequence[str], np.ndarray]:
    """Ids, texts and lines of rows ``id TAB sentence`` at the lines `places` (n,), without those that have no sentence.

    Raises `UserError` for a row without id and for an id that occurs twice.
    """
    ids, texts, lines = GrowingStrings(folder), GrowingStrings(folder), GrowingArray(folder, np.int64)
    for block in slices(len(rows)):
        numbers, parts = places[block], [row.split("\t", 1) for row in rows[block]]
        for number, part in zip(numbers.tolist(), parts):
            if len(part) == 1:
                raise UserError(f"{path}, line {number + 1}: expected id TAB sentence, found {part[0][:40]!r}")
        kept = [number for number, (_, text) in enumerate(parts) if text.strip()]
        ids.extend([parts[number][0] for number in kept])
        texts.extend([parts[number][1] for number in kept])
        lines.append(numbers[kept])
    names = ids.finish()
    hashed = in_order(_hashes(names), HASHED, folder)
    again = min((two[2] for one, two in itertools.pairwise(hashed) if one[:2] == two[:2]), default=None)
    if again is not None:
        raise UserError(f"{path}: the id {names[again]} occurs twice")
    return names, texts.finish(), lines.finish()


def _hashes(strings: Sequence[str]) -> Iterator[np.ndarray]:
    """Blocks of the `HASHED` of strings."""
    for block in slices(len(strings)):
        digests = b"".join(hashlib.blake2b(each.encode(), digest_size=16).digest() for each in strings[block])
        found = np.empty(block.stop - block.start, HASHED)
        found["high"], found["low"] = np.frombuffer(digests, "<u8").reshape(-1, 2).T
        found["number"] = np.arange(block.start, block.stop)
        yield found


def read_gold(path: str, sides: Sequence[Sentences]) -> set[tuple[int, int]]:
    """Reads pairs of ids as pairs of sentence numbers; raises `UserError` for an unknown id and for no pair."""
    rows = [line.split("\t") for line in read_lines(path)]
    numbers = []
    for place, side in enumerate(sides):
        wanted = {names[place] for names in rows if len(names) == 2}
        numbers.append({name: number for number, name in enumerate(side.ids) if name in wanted})
    found = set()
    for line, names in enumerate(rows, start=1):
        if len(names) != 2 or names[0] not in numbers[0] or names[1] not in numbers[1]:
            shown = "\t".join(names)[:40]
            raise UserError(f"{path}, line {line}: expected two ids of the files, found {shown!r}")
        found.add((numbers[0][names[0]], numbers[1][names[1]]))
    if not found:
        raise UserError(f"{path} holds no pairs")
    return found


def mine_texts(
    texts: tuple[Sequence[str], Sequence[str]],
    embeddings: Sequence[Vectors],
    neighbors: int = NEIGHBORS,
    folder: Path | None = None,
) -> Sequence[Pair]:
    """Pairs of source and target sentences with embeddings (n, C) and (m, C), by `mined`.

    Sentences may occur several times: as in XTREME's program, copies are one neighbor, and a sentence with copies is in
    no pair, since its id is not known.
    """
    (one, one_alone), (two, two_alone) = (_distinct(side, folder) for side in texts)
    found = (
        Pair(pair.score, int(one[pair.source]), int(two[pair.target]))
        for pair in mined(Rows(embeddings[0], one), Rows(embeddings[1], two), neighbors, folder=folder)
        if one_alone[pair.source] and two_alone[pair.target]
    )
    if folder is None:
        return list(found)
    kept = records(found, folder, PAIR)
    return Stored(len(kept), lambda first, end: [Pair(*row) for row in kept[first:end].tolist()])


def _distinct(texts: Sequence[str], folder: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """Numbers (d,) of the first copies of the d distinct texts, in order, and whether each has no other copy (d,).

    Texts of the same 128-bit hash are the same.
    """
    first, alone = zeros(folder, bool, len(texts)), zeros(folder, bool, len(texts))
    known, place = None, -1  # the last text and its first copy
    for *text, number in in_order(_hashes(texts), HASHED, folder):
        if text == known:
            alone[place] = False
        else:
            first[number] = alone[number] = True
            known, place = text, number
    numbers, without = GrowingArray(folder, np.int64), GrowingArray(folder, bool)
    for rows in slices(len(texts)):
        numbers.append(np.flatnonzero(first[rows]) + rows.start)
        without.append(alone[rows][first[rows]])
    return numbers.finish(), without.finish()


def mine(
    source: Vectors, target: Vectors, neighbors: int = NEIGHBORS, block: int = BLOCK_VECTORS, folder: Path | None = None
) -> list[Pair]:
    """The pairs of `mined` as a list."""
    return list(mined(source, target, neighbors, block, folder))


def mined(
    source: Vectors, target: Vectors, neighbors: int = NEIGHBORS, block: int = BLOCK_VECTORS, folder: Path | None = None
) -> Iterator[Pair]:
    """Yields pairs by ratio margin, in descending order; each sentence is in one pair at most.

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
    means = [_means(cosines, folder) for cosines, _ in (forward, backward)]
    of_source, of_target = _best(forward, means, folder), _best(backward, means[::-1], folder)
    taken = zeros(folder, bool, len(source)), zeros(folder, bool, len(target))
    for order, first, second in in_order(_candidates(of_source, of_target), CANDIDATE, folder):
        if not taken[0][first] and not taken[1][second]:
            taken[0][first] = taken[1][second] = True
            yield Pair(-order, first, second)


def _means(cosines: np.ndarray, folder: Path | None) -> np.ndarray:
    """The means (n,) of cosines (n, k)."""
    means = GrowingArray(folder, np.float32)
    for rows in slices(len(cosines)):
        means.append(cosines[rows].mean(1))
    return means.finish()


def _best(neighbors: tuple[np.ndarray, np.ndarray], means: Sequence[np.ndarray], folder: Path | None) -> np.ndarray:
    """The `BEST`, (n,), of the sentences of a side.

    Args:
        neighbors: their cosines (n, k) and numbers (n, k).
        means: of the cosines, (n,), and those of the other side, (m,).
    """
    (cosines, numbers), (own, other), best = neighbors, means, GrowingArray(folder, BEST)
    for rows in slices(len(cosines)):
        margins = ratio(cosines[rows], (own[rows, None] + other[numbers[rows]]) / 2)
        places = margins.argmax(1)[:, None]
        found = np.empty(len(margins), BEST)
        found["margin"] = np.take_along_axis(margins, places, 1)[:, 0]
        found["number"] = np.take_along_axis(numbers[rows], places, 1)[:, 0]
        found["number"][found["margin"] == -np.inf] = -1
        best.append(found)
    return best.finish()


def _candidates(of_source: np.ndarray, of_target: np.ndarray) -> Iterator[np.ndarray]:
    """Blocks of `CANDIDATE` from the `BEST` of both sides; a pair of both counts once, with the second margin."""
    for best, names in ((of_source, ("source", "target")), (of_target, ("target", "source"))):
        for rows in slices(len(best)):
            own, other = np.arange(rows.start, rows.stop), best["number"][rows]
            kept = other >= 0
            if best is of_source:
                kept &= of_target["number"][other] != own
            found = np.empty(int(kept.sum()), CANDIDATE)
            found["order"], found[names[0]], found[names[1]] = -best["margin"][rows][kept], own[kept], other[kept]
            yield found


def best_threshold(pairs: Sequence[Pair], gold: set[tuple[int, int]]) -> dict[str, float]:
    """The margin at or above which pairs have the highest F1: the middle between the last of them and the next pair.

    Args:
        pairs: in descending order of their scores; they are read twice, side by side.
        gold: numbers of the sentences of correct pairs.

    Returns: {"threshold", and in percent "f1", "precision", "recall" of the pairs at or above it}.
    """
    best = {"threshold": float("inf"), "f1": 0.0, "precision": 0.0, "recall": 0.0}
    correct = 0
    rest = itertools.chain(itertools.islice(pairs, 1, None), [None])
    for count, (pair, following) in enumerate(zip(pairs, rest), start=1):
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
