"""Maps embeddings of one language into those of another by an orthogonal matrix, with a small dictionary or none.

The command is `fairseq-xl embeddings map`. The self-learning of VecMap (Artetxe, Labaka & Agirre 2018, *A robust
self-learning method for fully unsupervised cross-lingual mappings of word embeddings*), its orthogonal form: a
dictionary gives a mapping, the mapping gives the next dictionary, until it no longer improves. The first dictionary
pairs the pieces that both languages have (`identical`), or pieces whose similarities to all other pieces of their
language have similar distributions (`unsupervised`).

Shapes: V, W pieces of source and target, the most frequent first, C channels, N pairs of a dictionary.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairseq_xl.data.vocabulary.special_symbols import WORD_START
from fairseq_xl.errors import UserError

logger = logging.getLogger(__name__)

STARTS = ("identical", "unsupervised")
BLOCK = 2048  # rows of similarities in memory at a time
Tables = tuple[np.ndarray | None, np.ndarray | None]


@dataclass(frozen=True)
class SelfLearning:
    """Settings of self-learning; defaults are the paper's."""

    neighbors: int = 10  # nearest neighbors in CSLS
    most_frequent: int = 20000  # pieces of each language, the most frequent ones, in dictionaries
    most_frequent_at_first: int = 4000  # the same for an unsupervised first dictionary
    keep: float = 0.1  # initial random share of similarities that are used
    keep_factor: float = 2.0  # factor by which this share grows, up to 1, when the dictionary stops improving
    patience: int = 50  # dictionaries in a row without improvement
    threshold: float = 1e-6  # minimum improvement of the mean similarity
    seed: int = 1  # seed of the random shares


def scale_to_unit(vectors: np.ndarray) -> np.ndarray:
    """(V, C) -> rows of length 1; a row of zeros is unchanged."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)


def normalize(vectors: np.ndarray) -> np.ndarray:
    """(V, C) -> rows of length 1, minus their mean, and scaled to length 1 again."""
    vectors = scale_to_unit(vectors)
    return scale_to_unit(vectors - vectors.mean(axis=0))


def orthogonal(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Paired rows, both (N, C) -> the orthogonal matrix (C, C) that maps the first nearest to the second."""
    left, _, right = np.linalg.svd(source.T @ target)
    return left @ right


def blocks(source: np.ndarray, target: np.ndarray, table: np.ndarray | None = None) -> Iterator[np.ndarray]:
    """Yields the similarities of rows (V, C) and (W, C), or of their `table` (V, W), in blocks (at most BLOCK, W)."""
    for start in range(0, len(source), BLOCK):
        rows = slice(start, start + BLOCK)
        yield source[rows] @ target.T if table is None else table[rows]


def nearest_mean(source: np.ndarray, target: np.ndarray, neighbors: int, table: np.ndarray | None = None) -> np.ndarray:
    """Mean similarity of each row of (V, C) to the `neighbors` nearest rows of (W, C) -> (V,)"""
    import torch

    count = min(neighbors, len(target))
    parts = map(torch.from_numpy, blocks(source, target, table))
    means = [part.topk(count, sorted=False).values.mean(1) for part in parts]
    return torch.cat(means).numpy()


def best_matches(
    source: np.ndarray,
    target: np.ndarray,
    neighbors: int,
    keep: float = 1.0,
    rng: Any = None,
    tables: Tables = (None, None),
) -> tuple[np.ndarray, np.ndarray]:
    """The nearest row of (W, C) for each row of (V, C) by CSLS, which lowers the scores of hubs.

    With `keep` below 1 each pair is used with that probability only (VecMap sets the similarities of other pairs to 0);
    a row without any pair uses all of them. `tables`: all similarities (V, W) and (W, V), if they are computed already.

    Returns: rows of the target (V,), and the similarity of each pair without CSLS (V,).
    """
    hubs = nearest_mean(target, source, neighbors, tables[1]) / 2
    matches, values = [], []
    for similarity in blocks(source, target, tables[0]):
        scores = similarity - hubs
        if keep < 1:
            dropped = rng.random(scores.shape, dtype=np.float32) >= keep
            dropped &= ~dropped.all(axis=1, keepdims=True)
            scores[dropped] = -np.inf
        best = scores.argmax(axis=1)
        matches.append(best)
        values.append(similarity[np.arange(len(best)), best])
    return np.concatenate(matches), np.concatenate(values)


def match_both_ways(
    source: np.ndarray, target: np.ndarray, neighbors: int, keep: float = 1.0, rng: np.random.Generator | None = None
) -> tuple[np.ndarray, np.ndarray, float]:
    """Dictionary of best matches in both directions: rows of source and target (V + W,), and the mean similarity."""
    tables: Tables = (None, None)
    if max(len(source), len(target)) <= BLOCK:  # computed once for all uses
        table = source @ target.T
        tables = table, np.ascontiguousarray(table.T)
    forward, forward_values = best_matches(source, target, neighbors, keep, rng, tables)
    backward, backward_values = best_matches(target, source, neighbors, keep, rng, tables[::-1])
    pairs = np.concatenate((np.arange(len(source)), backward)), np.concatenate((forward, np.arange(len(target))))
    return *pairs, float(forward_values.mean() + backward_values.mean()) / 2


def identical(
    source: Iterable[str], target: Iterable[str], ignore_case: bool = False, min_length: int = 1
) -> tuple[np.ndarray, ...]:
    """Positions (N,) in both lists of the pieces that they share; with `ignore_case` one may be in several pairs."""
    folded: Callable[[str], str] = str.casefold if ignore_case else str
    positions = defaultdict(list)
    for position, symbol in enumerate(map(folded, target)):
        if len(symbol.removeprefix(WORD_START)) >= min_length:
            positions[symbol].append(position)
    pairs = [(i, j) for i, symbol in enumerate(map(folded, source)) for j in positions.get(symbol, ())]
    return tuple(np.array(pairs, dtype=np.int64).reshape(-1, 2).T)


def similarity_root(vectors: np.ndarray) -> np.ndarray:
    """X (V, C) -> the symmetric root (V, V) of X Xᵀ, the similarities of its rows."""
    left, values, _ = np.linalg.svd(vectors, full_matrices=False)
    return left * values @ left.T


def unsupervised(source: np.ndarray, target: np.ndarray, settings: SelfLearning) -> tuple[np.ndarray, np.ndarray]:
    """Dictionary of rows (V, C), (W, C) with similar neighborhoods: positions in the first and in the second.

    A sorted row of the root of X Xᵀ is the distribution of a piece's similarities to all pieces, which can be compared
    without a dictionary. Only the most frequent pieces are used, the same number on both sides.
    """
    count = min(settings.most_frequent_at_first, len(source), len(target))
    rows, columns = (normalize(np.sort(similarity_root(part[:count]), axis=1)) for part in (source, target))
    return match_both_ways(rows, columns, settings.neighbors)[:2]


def learn(
    source: np.ndarray, target: np.ndarray, pairs: Sequence[np.ndarray], settings: SelfLearning = SelfLearning()
) -> tuple[np.ndarray, dict[str, Any]]:
    """Learns the orthogonal mapping from source to target.

    `source` (V, C) and `target` (W, C) are normalized, the most frequent pieces first; `pairs`, the first dictionary,
    are positions in them, both (N,). Returns the mapping (C, C), and a report: number of dictionaries, and mean
    similarity of the last one's pairs.
    """
    rng = np.random.default_rng(settings.seed)
    front, goal = source[: settings.most_frequent], target[: settings.most_frequent]
    best, since, keep, count = -np.inf, 0, settings.keep, 0
    while True:
        mapping = orthogonal(source[pairs[0]], target[pairs[1]])
        *pairs, similarity = match_both_ways(front @ mapping, goal, settings.neighbors, keep, rng)
        count += 1
        if similarity >= best + settings.threshold:
            best, since = similarity, 0
            continue
        since += 1
        if since > settings.patience:
            if keep >= 1:
                break
            keep, since = min(1.0, settings.keep_factor * keep), 0
    return orthogonal(source[pairs[0]], target[pairs[1]]), {"dictionaries": count, "similarity": round(similarity, 4)}


def first_pairs(
    start: str, source: Any, target: Any, settings: SelfLearning, ignore_case: bool = False, min_length: int = 1
) -> Sequence[np.ndarray]:
    """`identical` of two `Vectors`; `UserError` for fewer than two pairs. Warns if most symbols are in both lists."""
    if start == "unsupervised":
        return unsupervised(source.rows, target.rows, settings)
    pairs = identical(source.symbols, target.symbols, ignore_case, min_length)
    if len(pairs[0]) < 2:
        condition = f" of at least {min_length} characters" if min_length > 1 else ""
        raise UserError(
            f"--start identical: the languages have {len(pairs[0])} pieces{condition} in common, two are needed; "
            "--start unsupervised needs none"
        )
    common = len(set(source.symbols) & set(target.symbols)) / min(len(source.symbols), len(target.symbols))
    if common > 0.5:
        logger.warning(
            "--start identical: %.0f %% of the pieces are in both files. For languages of one vocabulary make them "
            "with `fairseq-xl embeddings skipgram --min-count N`, to leave out rare pieces and those of the other "
            "language",
            100 * common,
        )
    return pairs
