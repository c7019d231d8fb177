"""Search for nearest neighbors by cosine, in blocks: n source vectors, m target vectors, C channels, k neighbors.

At most `BLOCK_VECTORS` vectors of a side are normalized and compared at a time, so that either side may be a memory map
that is larger than the memory. The search is exact and compares all n m pairs; `fairseq_xl.mining.disk_index` has the
search for millions of vectors, which compares a part of them.
"""

import logging
from typing import Any

import numpy as np

from fairseq_xl.errors import UserError

BLOCK_VECTORS = 1 << 15  # vectors of a side in memory; on a GPU, their similarities too: 4 GB


Vectors = (
    Any  # rows (n, C) that are read in parts, by a slice or indices (b,): an array, a memory map, or `Rows` of one
)


class Rows:
    """The rows `indices`, (n,), of a matrix, which is not copied."""

    def __init__(self, matrix: Vectors, indices: np.ndarray):
        self.matrix, self.indices = matrix, indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, rows: Any, /) -> Any:
        return self.matrix[self.indices[rows]]


def nearest(source: Vectors, target: Vectors, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Target vectors (m, C) of highest cosine for each source vector (n, C); a vector of zeros has the cosine 0.

    Returns: cosines (n, k) in descending order, and indices of target vectors (n, k), in ascending order for equal
    cosines within a search; k is at most m. Raises `UserError` for a vector that is not finite.
    """
    import torch

    count = min(count, len(target))
    cosines = np.full((len(source), count), -np.inf, np.float32)
    indices = np.full((len(source), count), -1, np.int64)
    search = _search_on_gpu if torch.cuda.is_available() else _search_by_faiss
    for first in range(0, len(target), BLOCK_VECTORS):
        keys = normalize(target[first : first + BLOCK_VECTORS])
        for start in range(0, len(source), BLOCK_VECTORS):
            rows = slice(start, start + BLOCK_VECTORS)
            values, positions = search(normalize(source[rows]), keys, min(count, len(keys)))
            values = np.concatenate((cosines[rows], values), axis=1)
            positions = np.concatenate((indices[rows], positions + first), axis=1)
            order = np.lexsort((positions, -values), axis=1)[:, :count]
            cosines[rows] = np.take_along_axis(values, order, axis=1)
            indices[rows] = np.take_along_axis(positions, order, axis=1)
    return cosines, indices


def normalize(rows: np.ndarray) -> np.ndarray:
    """Rows (b, C) -> float32 rows of length 1; a row of zeros is unchanged."""
    floats = np.array(rows, dtype=np.float32)
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(floats, axis=1, keepdims=True)
    if not np.isfinite(lengths).all():
        raise UserError("expected finite embeddings in the range of float32, found NaN, infinite or too large numbers")
    return floats / np.maximum(lengths, 1e-12)


def _search_by_faiss(queries: np.ndarray, keys: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Inner products (b, k) of queries (b, C) with their k best keys (c, C), and the indices of these (b, k)."""
    faiss = import_faiss()
    return faiss.knn(queries, keys, count, metric=faiss.METRIC_INNER_PRODUCT)


def _search_on_gpu(queries: np.ndarray, keys: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """As `_search_by_faiss`."""
    import torch

    tensors = [torch.from_numpy(side).cuda() for side in (queries, keys)]
    values, indices = (tensors[0] @ tensors[1].T).topk(count, dim=1)
    return values.cpu().numpy(), indices.cpu().numpy()


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
