"""Parallel sentences found in the text of two languages by their sentence embeddings (Artetxe & Schwenk 2019).

n source sentences, m target sentences, C channels, k neighbors. The command is `fairseq-xl mine-bitext`. Functions with
an argument `folder` keep arrays that grow with n or m in temporary files in this existing folder
(`fairseq_xl.io.temporary_arrays`) and raise `OSError` if its disk is full. Without a folder they keep them in memory.
"""

import hashlib
import itertools
import math
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.retrieval_scores import NEIGHBORS, ratio
from fairseq_xl.io.compressed import stored
from fairseq_xl.io.external_sort import sorted_records
from fairseq_xl.io.lines import read_buffers, read_lines
from fairseq_xl.io.temporary_arrays import GrowingArray, GrowingStrings, LazySequence, records, slices, zeros
from fairseq_xl.io.text import is_blank
from fairseq_xl.mining.disk_index import nearest_approximately
from fairseq_xl.mining.nearest_neighbors import BLOCK_VECTORS, Rows, Vectors, nearest

DIGITS = 4  # of scores that are printed
HASH_DTYPE = np.dtype([("high", "<u8"), ("low", "<u8"), ("number", "<i8")])  # 128 bits of a hash, number of the string
BEST_DTYPE = np.dtype([("margin", "<f4"), ("number", "<i8")])  # of a sentence's candidate; -1: it has none
CANDIDATE_DTYPE = np.dtype([("negative_margin", "<f4"), ("source", "<i8"), ("target", "<i8")])
PAIR_DTYPE = np.dtype([("margin", "<f4"), ("source", "<i8"), ("target", "<i8")])


class Sentences(NamedTuple):
    """The n sentences of a file and their ids."""

    ids: Sequence[str]
    texts: Sequence[str]
    lines: np.ndarray  # (n,) the line of each sentence, from 0 on
    total: int  # number of lines of the file
    path: str


class Distinct(NamedTuple):
    """The d distinct texts of a side."""

    numbers: np.ndarray  # (d,) of their first copies, in order
    alone: np.ndarray  # (d,) whether a text has no other copy


class Pair(NamedTuple):
    """Two sentences, by their numbers, and their margin."""

    margin: float
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
        filled = [number for number, line in enumerate(buffer) if not is_blank(line)]
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
        kept = [number for number, (_, text) in enumerate(parts) if not is_blank(text)]
        ids.extend([parts[number][0] for number in kept])
        texts.extend([parts[number][1] for number in kept])
        lines.append(numbers[kept])
    names = ids.finish()
    first = distinct(names, folder).numbers
    if len(first) < len(names):
        again = next(place for place, number in enumerate(itertools.chain(first, [-1])) if place != number)
        raise UserError(f"{path}: the id {names[again]} occurs twice")
    return names, texts.finish(), lines.finish()


def _hashes(strings: Sequence[str]) -> Iterator[np.ndarray]:
    """Blocks of the `HASH_DTYPE` of strings."""
    for block in slices(len(strings)):
        digests = b"".join(hashlib.blake2b(each.encode(), digest_size=16).digest() for each in strings[block])
        found = np.empty(block.stop - block.start, HASH_DTYPE)
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
    """Pairs of source and target sentences, (n,) and (m,), by `mine_distinct`."""
    one, two = (distinct(side, folder) for side in texts)
    return mine_distinct((one, two), embeddings, neighbors, folder)


def mine_distinct(
    sides: tuple[Distinct, Distinct],
    embeddings: Sequence[Vectors],
    neighbors: int = NEIGHBORS,
    folder: Path | None = None,
) -> Sequence[Pair]:
    """Pairs of source and target sentences with embeddings (n, C) and (m, C), by `mine`.

    Sentences may occur several times: as in XTREME's program, copies are one neighbor, and a sentence with copies is in
    no pair, since its id is not known.
    """
    (one, one_alone), (two, two_alone) = sides
    found = (
        Pair(pair.margin, int(one[pair.source]), int(two[pair.target]))
        for pair in mine(Rows(embeddings[0], one), Rows(embeddings[1], two), neighbors, folder=folder)
        if one_alone[pair.source] and two_alone[pair.target]
    )
    if folder is None:
        return list(found)
    kept = records(found, folder, PAIR_DTYPE)
    return LazySequence(len(kept), lambda first, end: [Pair(*row) for row in kept[first:end].tolist()])


def distinct(texts: Sequence[str], folder: Path | None = None) -> Distinct:
    """Finds the distinct ones of texts (n,). With a `folder`, texts of the same 128-bit hash are the same."""
    if folder is None:
        places: dict[str, int] = {}
        for number, text in enumerate(texts):
            places.setdefault(text, number)
        counts = Counter(texts)  # in the order of `places`
        return Distinct(np.fromiter(places.values(), np.int64), np.fromiter(counts.values(), np.int64) == 1)
    first, alone = zeros(folder, bool, len(texts)), zeros(folder, bool, len(texts))
    known, place = None, -1  # the last text and its first copy
    for high, low, number in sorted_records(_hashes(texts), HASH_DTYPE, folder):
        if (high, low) == known:
            alone[place] = False
        else:
            first[number] = alone[number] = True
            known, place = (high, low), number
    numbers, without = GrowingArray(folder, np.int64), GrowingArray(folder, bool)
    for rows in slices(len(texts)):
        numbers.append(np.flatnonzero(first[rows]) + rows.start)
        without.append(alone[rows][first[rows]])
    return Distinct(numbers.finish(), without.finish())


def mine(
    source: Vectors, target: Vectors, neighbors: int = NEIGHBORS, block: int = BLOCK_VECTORS, folder: Path | None = None
) -> Iterator[Pair]:
    """Yields pairs by ratio margin, in descending order; each sentence is in one pair at most.

    The margin is the cosine over the mean of both sentences' mean cosines to their `neighbors` nearest sentences (eq. 1
    and 2 of the paper). Pairs for which that mean is not above 0 are left out. The best candidate of each sentence in
    both directions is kept, and pairs are taken greedily. With a `folder` the search is approximate, with an index on
    the disk there (`fairseq_xl.mining.disk_index`), which is removed after the search; otherwise it is exact.
    """
    if folder is None:
        forward, backward = nearest(source, target, neighbors, block), nearest(target, source, neighbors, block)
    else:
        forward = _nearest_on_disk(source, target, neighbors, folder, block)
        backward = _nearest_on_disk(target, source, neighbors, folder, block)
    means = [_means(cosines, folder) for cosines, _ in (forward, backward)]
    of_source, of_target = _best(forward, means, folder), _best(backward, means[::-1], folder)
    taken = zeros(folder, bool, len(source)), zeros(folder, bool, len(target))
    for negative_margin, first, second in sorted_records(_candidates(of_source, of_target), CANDIDATE_DTYPE, folder):
        if not taken[0][first] and not taken[1][second]:
            taken[0][first] = taken[1][second] = True
            yield Pair(-negative_margin, first, second)


def _nearest_on_disk(
    source: Vectors, target: Vectors, neighbors: int, folder: Path, block: int
) -> tuple[np.ndarray, np.ndarray]:
    """As `nearest_approximately`, with an index in a new folder in `folder` that is removed at the end."""
    # NFS cannot remove the folder, since files of the result are still mapped
    with tempfile.TemporaryDirectory(prefix="index-", dir=folder, ignore_cleanup_errors=True) as name:
        return nearest_approximately(source, target, neighbors, Path(name), block)


def _means(cosines: np.ndarray, folder: Path | None) -> np.ndarray:
    """The means (n,) of cosines (n, k)."""
    means = GrowingArray(folder, np.float32)
    for rows in slices(len(cosines)):
        means.append(cosines[rows].mean(1))
    return means.finish()


def _best(neighbors: tuple[np.ndarray, np.ndarray], means: Sequence[np.ndarray], folder: Path | None) -> np.ndarray:
    """The best candidate (n,) of each sentence of one side by margin, as `BEST_DTYPE`.

    Args:
        neighbors: their cosines (n, k) and numbers (n, k).
        means: of the cosines, (n,), and those of the other side, (m,).
    """
    (cosines, numbers), (own, other), best = neighbors, means, GrowingArray(folder, BEST_DTYPE)
    for rows in slices(len(cosines)):
        margins = ratio(cosines[rows], (own[rows, None] + other[numbers[rows]]) / 2)
        places = margins.argmax(1)[:, None]
        found = np.empty(len(margins), BEST_DTYPE)
        found["margin"] = np.take_along_axis(margins, places, 1)[:, 0]
        found["number"] = np.take_along_axis(numbers[rows], places, 1)[:, 0]
        found["number"][found["margin"] == -np.inf] = -1
        best.append(found)
    return best.finish()


def _candidates(of_source: np.ndarray, of_target: np.ndarray) -> Iterator[np.ndarray]:
    """Yields blocks of `CANDIDATE_DTYPE` from the best candidates of both sides.

    A pair that is best in both directions is yielded once, with the target side's margin.
    """
    for best, names in ((of_source, ("source", "target")), (of_target, ("target", "source"))):
        for rows in slices(len(best)):
            own, other = np.arange(rows.start, rows.stop), best["number"][rows]
            kept = other >= 0
            if best is of_source:
                kept &= of_target["number"][other] != own
            found = np.empty(int(kept.sum()), CANDIDATE_DTYPE)
            found["negative_margin"] = -best["margin"][rows][kept]
            found[names[0]], found[names[1]] = own[kept], other[kept]
            yield found


def best_threshold(pairs: Sequence[Pair], gold: set[tuple[int, int]]) -> dict[str, float]:
    """The margin at or above which pairs have the highest F1: the middle between the last of them and the next pair.

    Args:
        pairs: in descending order of their margins; two iterators read them in parallel.
        gold: numbers of the sentences of correct pairs.

    Returns: {"threshold", and in percent "f1", "precision", "recall" of the pairs at or above it}.
    """
    best = {"threshold": float("inf"), "f1": 0.0, "precision": 0.0, "recall": 0.0}
    correct = 0
    rest = itertools.chain(itertools.islice(pairs, 1, None), [None])
    for count, (pair, following) in enumerate(zip(pairs, rest), start=1):
        correct += (pair.source, pair.target) in gold
        f1 = 200 * correct / (count + len(gold))
        if f1 > best["f1"] and (following is None or following.margin < pair.margin):
            best = {
                "threshold": pair.margin if following is None else (pair.margin + following.margin) / 2,
                "f1": f1,
                "precision": 100 * correct / count,
                "recall": 100 * correct / len(gold),
            }
    return best


def rounded(scores: dict[str, float]) -> dict[str, float | None]:
    """Scores of `best_threshold` as they are printed, the threshold exactly; without a correct pair there is none."""
    threshold = scores["threshold"] if math.isfinite(scores["threshold"]) else None
    return {name: round(value, DIGITS) for name, value in scores.items()} | {"threshold": threshold}
