"""Search for nearest neighbors by cosine, in blocks: n source vectors, m target vectors, C channels, k neighbors.

At most `BLOCK_VECTORS` vectors of a side are normalized and compared at a time, so that either side may be a memory map
that is larger than the memory. The result has k numbers for each source vector. The search is exact and compares all
n m pairs; `fairseq_xl.mining.disk_index` has the search for millions of vectors, which compares a part of them.
"""

import logging
from typing import Any, Protocol

import numpy as np
import torch

from fairseq_xl.errors import UserError

BLOCK_VECTORS = 1 << 15  # vectors of a side in memory; on a GPU, their similarities too: 4 GB


class Vectors(Protocol):
    """Rows (n, C) that are read in parts: an array, a memory map, or `Rows` of one."""

    def __len__(self) -> int:
        """Number of rows."""
        ...

    def __getitem__(self, rows: Any, /) -> Any:
        """Some rows, an array (b, C); `rows` is a slice or an array of numbers (b,)."""
        ...


class Rows:
    """The rows `numbers`, (n,), of a matrix, which stays where it is."""

    def __init__(self, matrix: Vectors, numbers: np.ndarray):
        self.matrix, self.numbers = matrix, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, rows: Any, /) -> Any:
        return self.matrix[self.numbers[rows]]


def nearest(source: Vectors, target: Vectors, count: int, block: int = BLOCK_VECTORS) -> tuple[np.ndarray, np.ndarray]:
    """Target vectors of highest cosine for each source vector; a vector of zeros has the cosine 0 to every other one.

    Args:
        source, target: vectors (n, C), (m, C).
        count: k, at most m are returned.
        block: vectors of either side at a time.

    Returns: cosines (n, k) in descending order, and numbers of target vectors (n, k); of equal cosines within a search
    the lower number is first. Raises `UserError` for a vector with a number that is not finite.
    """
    count = min(count, len(target))
    cosines = np.full((len(source), count), -np.inf, np.float32)
    numbers = np.full((len(source), count), -1, np.int64)
    search = _search_on_gpu if torch.cuda.is_available() else _search_by_faiss
    for first in range(0, len(target), block):
        keys = unit(target[first : first + block])
        for start in range(0, len(source), block):
            rows = slice(start, start + block)
            values, places = search(unit(source[rows]), keys, min(count, len(keys)))
            values = np.concatenate((cosines[rows], values), axis=1)
            places = np.concatenate((numbers[rows], places + first), axis=1)
            order = np.lexsort((places, -values), axis=1)[:, :count]
            cosines[rows] = np.take_along_axis(values, order, axis=1)
            numbers[rows] = np.take_along_axis(places, order, axis=1)
    return cosines, numbers


def unit(rows: np.ndarray) -> np.ndarray:
    """Rows (b, C) -> float32 rows of length 1; a row of zeros stays as it is."""
    floats = np.array(rows, dtype=np.float32)
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(floats, axis=1, keepdims=True)
    if not np.isfinite(lengths).all():
        raise UserError("expected finite embeddings in the range of float32, found NaN, infinite or too large numbers")
    return floats / np.maximum(lengths, 1e-12)


def _search_by_faiss(queries: np.ndarray, keys: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Inner products (b, k) of queries (b, C) with their k best keys (c, C), and the numbers of these."""
    faiss = import_faiss()
    found: tuple[np.ndarray, np.ndarray] = faiss.knn(queries, keys, count, metric=faiss.METRIC_INNER_PRODUCT)
    return found


def _search_on_gpu(queries: np.ndarray, keys: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """As `_search_by_faiss`."""
    on_gpu = [torch.from_numpy(side).cuda() for side in (queries, keys)]
    values, numbers = (on_gpu[0] @ on_gpu[1].T).topk(count, dim=1)
    return values.cpu().numpy(), numbers.cpu().numpy()


def import_faiss() -> Any:
    """The package faiss, which logs no progress of its import; raises `UserError` if it is missing."""
    logging.getLogger("faiss").setLevel(logging.WARNING)
    try:
        import faiss
    except ImportError:
        raise UserError(
            "mining needs the package faiss: pip install faiss-cpu, or XL_EXTRAS=mining . recipes/environment.sh"
        ) from None
    return faiss
