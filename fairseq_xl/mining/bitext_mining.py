"""Mines parallel sentences in the text of two languages by their sentence embeddings (Artetxe & Schwenk 2019).

n source sentences, m target sentences, C channels, k neighbors. The command is `fairseq-xl search bitext`. Functions
with an argument `folder` store arrays that grow with n or m in temporary files in this existing folder
(`fairseq_xl.io.temporary_arrays`) and raise `UserError` if its disk is full. Without a folder, arrays are in memory.
"""

import hashlib
import itertools
import math
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.retrieval_scores import NEIGHBORS, ratio
from fairseq_xl.io.compressed import stored
from fairseq_xl.io.lines import read_buffers, read_lines
from fairseq_xl.io.temporary_arrays import (
    GrowingArray,
    GrowingStrings,
    LazySequence,
    full,
    records,
    slices,
    sorted_records,
)
from fairseq_xl.io.text import is_blank
from fairseq_xl.mining.disk_index import nearest_approximately
from fairseq_xl.mining.nearest_neighbors import Rows, Vectors, nearest

DIGITS = 4  # of printed scores
HASH_DTYPE = np.dtype([("high", "<u8"), ("low", "<u8"), ("index", "<i8")])  # 128 bits of a hash, index of the string
BEST_DTYPE = np.dtype([("margin", "<f4"), ("index", "<i8")])  # of a sentence's candidate; -1: it has none
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

    indices: np.ndarray  # (d,) of their first copies, in order
    is_unique: np.ndarray  # (d,) whether a text has no other copy


class Pair(NamedTuple):
    """The indices of two sentences, and their margin."""

    margin: float
    source: int
    target: int


def read_sentences(path: str, folder: Path | None = None) -> Sentences:
    """Reads a sentence from each line, or ``id TAB sentence`` as BUCC has them, if most lines contain a tab.

    Without ids in the file, ids are line numbers, from 0 on. Empty lines, which separate documents, and ids without a
    sentence are left out. Raises `UserError` for a missing or ill-encoded file, one without sentences, a line without
    id among those with one, and a repeated id.
    """
    strings, line_numbers, total, tabs = GrowingStrings(folder), GrowingArray(folder, np.int64), 0, 0
    for buffer in read_buffers(str(stored(path))):
        indices = [index for index, line in enumerate(buffer) if not is_blank(line)]
        strings.extend([buffer[index] for index in indices])
        line_numbers.append(np.array(indices, np.int64) + total)
        tabs += sum("\t" in buffer[index] for index in indices)
        total += len(buffer)
    texts, lines = strings.finish(), line_numbers.finish()
    if 2 * tabs > len(texts):
        ids, texts, lines = _with_ids(path, texts, lines, folder)
    else:
        names = GrowingStrings(folder)
        for rows in slices(len(lines)):
            names.extend([str(index) for index in lines[rows].tolist()])
        ids = names.finish()
    if not texts:
        raise UserError(f"{path} holds no sentences")
    return Sentences(ids, texts, lines, total, path)


def _with_ids(
    path: str, rows: Sequence[str], line_numbers: np.ndarray, folder: Path | None
) -> tuple[Sequence[str], Sequence[str], np.ndarray]:
    """Ids, texts and lines of rows ``id TAB sentence`` with a sentence; `UserError` without or for equal ids."""
    ids, texts, lines = GrowingStrings(folder), GrowingStrings(folder), GrowingArray(folder, np.int64)
    for block in slices(len(rows)):
        block_lines, parts = line_numbers[block], [row.split("\t", 1) for row in rows[block]]
        for line, part in zip(block_lines.tolist(), parts):
            if len(part) == 1:
                raise UserError(f"{path}, line {line + 1}: expected id TAB sentence, found {part[0][:40]!r}")
        indices = [index for index, (_, text) in enumerate(parts) if not is_blank(text)]
        ids.extend([parts[index][0] for index in indices])
        texts.extend([parts[index][1] for index in indices])
        lines.append(block_lines[indices])
    names = ids.finish()
    first = distinct(names, folder).indices
    if len(first) < len(names):
        repeated = next(position for position, index in enumerate(itertools.chain(first, [-1])) if position != index)
        raise UserError(f"{path}: the id {names[repeated]} occurs twice")
    return names, texts.finish(), lines.finish()


def _hashes(strings: Sequence[str]) -> Iterator[np.ndarray]:
    """Blocks of the `HASH_DTYPE` of strings."""
    for block in slices(len(strings)):
        digests = b"".join(hashlib.blake2b(string.encode(), digest_size=16).digest() for string in strings[block])
        hashes = np.empty(block.stop - block.start, HASH_DTYPE)
        hashes["high"], hashes["low"] = np.frombuffer(digests, "<u8").reshape(-1, 2).T
        hashes["index"] = np.arange(block.start, block.stop)
        yield hashes


def read_gold(path: str, sides: Sequence[Sentences]) -> set[tuple[int, int]]:
    """Reads pairs of ids as pairs of sentence indices; raises `UserError` for an unknown id and for no pair."""
    rows = [line.split("\t") for line in read_lines(path)]
    indices = []
    for column, side in enumerate(sides):
        ids = {names[column] for names in rows if len(names) == 2}
        indices.append({name: index for index, name in enumerate(side.ids) if name in ids})
    pairs = set()
    for line, names in enumerate(rows, start=1):
        if len(names) != 2 or names[0] not in indices[0] or names[1] not in indices[1]:
            text = "\t".join(names)[:40]
            raise UserError(f"{path}, line {line}: expected two ids of the files, found {text!r}")
        pairs.add((indices[0][names[0]], indices[1][names[1]]))
    if not pairs:
        raise UserError(f"{path} holds no pairs")
    return pairs


def mine_distinct(
    sides: tuple[Distinct, Distinct],
    embeddings: Sequence[Vectors],
    neighbors: int = NEIGHBORS,
    folder: Path | None = None,
) -> Sequence[Pair]:
    """Pairs of source and target sentences with embeddings (n, C) and (m, C), by `mine`.

    As in XTREME's program, copies of a sentence are one neighbor, and are in no pair, since their id is ambiguous.
    """
    (source, source_unique), (target, target_unique) = sides
    pairs = (
        Pair(pair.margin, int(source[pair.source]), int(target[pair.target]))
        for pair in mine(Rows(embeddings[0], source), Rows(embeddings[1], target), neighbors, folder=folder)
        if source_unique[pair.source] and target_unique[pair.target]
    )
    if folder is None:
        return list(pairs)
    array = records(pairs, folder, PAIR_DTYPE)
    return LazySequence(len(array), lambda first, end: [Pair(*row) for row in array[first:end].tolist()])


def distinct(texts: Sequence[str], folder: Path | None = None) -> Distinct:
    """The distinct texts among texts (n,): those with the same 128-bit hash are the same."""
    is_first, is_unique = full(folder, bool, 0, len(texts)), full(folder, bool, 0, len(texts))
    latest, first_copy = None, -1  # the last text and its first copy
    for high, low, index in sorted_records(_hashes(texts), HASH_DTYPE, folder):
        if (high, low) == latest:
            is_unique[first_copy] = False
        else:
            is_first[index] = is_unique[index] = True
            latest, first_copy = (high, low), index
    copies, unique_flags = GrowingArray(folder, np.int64), GrowingArray(folder, bool)
    for rows in slices(len(texts)):
        copies.append(np.flatnonzero(is_first[rows]) + rows.start)
        unique_flags.append(is_unique[rows][is_first[rows]])
    return Distinct(copies.finish(), unique_flags.finish())


def mine(source: Vectors, target: Vectors, neighbors: int = NEIGHBORS, folder: Path | None = None) -> Iterator[Pair]:
    """Yields pairs by ratio margin, in descending order; each sentence is in one pair at most.

    The margin is the cosine over the mean of both sentences' mean cosines to their `neighbors` nearest sentences (eq. 1
    and 2 of the paper), which must be above 0. Pairs are selected greedily among the best candidates of each sentence
    in both directions. With a `folder` the search is approximate, with a temporary index there.
    """
    if folder is None:
        forward, backward = nearest(source, target, neighbors), nearest(target, source, neighbors)
    else:
        forward = _nearest_on_disk(source, target, neighbors, folder)
        backward = _nearest_on_disk(target, source, neighbors, folder)
    means = [_means(cosines, folder) for cosines, _ in (forward, backward)]
    targets, sources = _best(forward, means, folder), _best(backward, means[::-1], folder)
    used = full(folder, bool, 0, len(source)), full(folder, bool, 0, len(target))
    for negative_margin, first, second in sorted_records(_candidates(targets, sources), CANDIDATE_DTYPE, folder):
        if not used[0][first] and not used[1][second]:
            used[0][first] = used[1][second] = True
            yield Pair(-negative_margin, first, second)


def _nearest_on_disk(source: Vectors, target: Vectors, neighbors: int, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    # NFS cannot remove the folder, since files of the result are still mapped
    with tempfile.TemporaryDirectory(prefix="index-", dir=folder, ignore_cleanup_errors=True) as name:
        return nearest_approximately(source, target, neighbors, Path(name))


def _means(cosines: np.ndarray, folder: Path | None) -> np.ndarray:
    """The means (n,) of cosines (n, k)."""
    means = GrowingArray(folder, np.float32)
    for rows in slices(len(cosines)):
        means.append(cosines[rows].mean(1))
    return means.finish()


def _best(neighbors: tuple[np.ndarray, np.ndarray], means: Sequence[np.ndarray], folder: Path | None) -> np.ndarray:
    """The best candidate (n,) of each sentence by margin, as `BEST_DTYPE`.

    From cosines and indices (n, k) of its neighbors, mean cosines (n,) of this side and (m,) of the other.
    """
    (cosines, indices), (own_means, other_means), best = neighbors, means, GrowingArray(folder, BEST_DTYPE)
    for rows in slices(len(cosines)):
        margins = ratio(cosines[rows], (own_means[rows, None] + other_means[indices[rows]]) / 2)
        columns = margins.argmax(1)[:, None]
        candidates = np.empty(len(margins), BEST_DTYPE)
        candidates["margin"] = np.take_along_axis(margins, columns, 1)[:, 0]
        candidates["index"] = np.take_along_axis(indices[rows], columns, 1)[:, 0]
        candidates["index"][candidates["margin"] == -np.inf] = -1
        best.append(candidates)
    return best.finish()


def _candidates(best_targets: np.ndarray, best_sources: np.ndarray) -> Iterator[np.ndarray]:
    """Yields blocks of `CANDIDATE_DTYPE`, each pair once; a pair best in both directions has the target's margin."""
    for best, names in ((best_targets, ("source", "target")), (best_sources, ("target", "source"))):
        for rows in slices(len(best)):
            indices, matches = np.arange(rows.start, rows.stop), best["index"][rows]
            is_valid = matches >= 0
            if best is best_targets:
                is_valid &= best_sources["index"][matches] != indices
            block = np.empty(int(is_valid.sum()), CANDIDATE_DTYPE)
            block["negative_margin"] = -best["margin"][rows][is_valid]
            block[names[0]], block[names[1]] = indices[is_valid], matches[is_valid]
            yield block


def best_threshold(pairs: Sequence[Pair], gold: set[tuple[int, int]]) -> dict[str, float]:
    """The threshold of the margin with the highest F1: the middle between the last pair above it and the next pair.

    `pairs` are in descending order of their margins; `gold` has the indices of correct ones. Returns: {"threshold", and
    in percent "f1", "precision", "recall" of the pairs at or above it}.
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
    """Rounded scores of `best_threshold` with the exact threshold, which is None without a correct pair."""
    threshold = scores["threshold"] if math.isfinite(scores["threshold"]) else None
    return {name: round(value, DIGITS) for name, value in scores.items()} | {"threshold": threshold}
