"""Hard negatives for paraphrase classification (Huang et al. 2019, section 3).

A negative of a sentence X of a binarized language pair is a sentence of the other language with a similar embedding,
by a deep averaging network (xl_dan, trained with `paraphrase_similarity`). It is never the translation of X or of
another copy of X, nor X itself. It is about as long as the translation, as random negatives are: otherwise length alone
would reveal most negatives. If no sentence of these lengths is a negative, one of another length is used.

Memory does not grow with the text. An exact index, for fewer than --exact-below distinct sentences of the second side,
holds 2 kB for each at 512 channels, and twice that while it grows. The vectors of a larger index are on disk
(`disk_index`). Hashes, lines and negatives of all pairs are in mapped files, and complete parts of the negatives in a
file for each 131,072 pairs, all in a folder beside the result until it is complete. The command is
`fairseq-xl search negatives`.
"""

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fairseq_xl.data import Numbers
from fairseq_xl.data.corpora.negatives import RandomNegatives, hashes_of_block, negatives_file, read_negatives
from fairseq_xl.data.corpora.sentence_pairs import SentencePairs
from fairseq_xl.data.framing import pad_rows
from fairseq_xl.data.store.binarized_text import Text
from fairseq_xl.data.store.cached_tables import Blocks, table
from fairseq_xl.data.store.manifest import data_folders, is_begun, read_note
from fairseq_xl.errors import UserError
from fairseq_xl.inference.embedder import batches
from fairseq_xl.inference.model_loading import load_model
from fairseq_xl.io.arrays import read_arrays, write_arrays
from fairseq_xl.io.files import FORMATS, replacing, write_json
from fairseq_xl.io.fingerprints import fingerprint
from fairseq_xl.io.step_records import begin_parts, difference
from fairseq_xl.io.temporary_arrays import full
from fairseq_xl.mining.disk_index import PROBES, disk_index, search_parameters
from fairseq_xl.mining.nearest_neighbors import import_faiss
from fairseq_xl.models.dan import XLDANModel

logger = logging.getLogger(__name__)

BATCH_TOKENS = 65536
LINES_AT_ONCE = 8192  # sentences that are embedded, searched for or mined at a time
SPARE = 8  # extra candidates of each sentence, since some are translations
PART_CHUNKS = 16  # chunks of `LINES_AT_ONCE` pairs whose negatives are in a file, from which a stopped run continues
BLOCK_ROWS = 1 << 20  # rows of a mapped file in memory at a time


class SentenceVectors:
    """A deep averaging network as a function from sentences to embeddings; `pairs`: default those of its training."""

    def __init__(self, checkpoint: str, data: str, pairs: str | None = None):
        model, self.task = load_model(checkpoint, data, **({"pairs": pairs} if pairs else {}))
        if not isinstance(model, XLDANModel):
            raise UserError(f"{checkpoint}: mining needs {XLDANModel.description}")
        self.channels = model.cfg.embed_dim
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = model.to(self.device)

    @torch.no_grad()
    def __call__(self, side: Text, lines: Numbers) -> np.ndarray:
        """Sentence embeddings (n, C) float32 of these `lines` (n,) of a binarized text."""
        result = np.empty((len(lines), self.channels), dtype=np.float32)
        for batch in batches(np.asarray(side.sizes)[lines], BATCH_TOKENS):
            words = pad_rows([side[lines[index]][:-1] for index in batch], self.model.pad)
            result[batch] = self.model.vectors(torch.from_numpy(words).to(self.device)).float().cpu().numpy()
        return result


def build_index(embed: SentenceVectors, side: Text, lines: Numbers, exact_below: int, folder: Path) -> Any:
    """Builds an index of the sentences of a side in m `lines`, in their order, for inner products.

    It is exact for fewer sentences than `exact_below`; otherwise it has cells, of which a search visits some, and its
    vectors are in a folder, where a complete one is opened.
    """
    if len(lines) >= exact_below:
        return disk_index(folder, lambda rows: embed(side, lines[rows]), len(lines), embed.channels, LINES_AT_ONCE)
    index = import_faiss().IndexFlatIP(embed.channels)
    for start in range(0, len(lines), LINES_AT_ONCE):
        index.add(embed(side, lines[start : start + LINES_AT_ONCE]))
        logger.info("index: %d of %d distinct sentences", index.ntotal, len(lines))
    return index


class Pool:
    """The distinct sentences of the second side, sorted by length, which is the order of the index.

    Many hashes and lines are in files of a folder. Sentences count as equal if their lengths and the first 64 - b bits
    of their hashes are equal, where b bits hold the length. Pairs with a sentence of more than `longest` tokens are
    left out.
    """

    def __init__(self, pairs: SentencePairs, longest: int, folder: Path):
        self.candidates, self.side = pairs.candidates, pairs.sides[1]
        pairs.measured(longest)  # raises `UserError` if all are longer
        self.random = RandomNegatives(pairs, longest)
        self.length_bits = np.uint64((longest + 1).bit_length())

        def sorted_keys(name: str, blocks: Blocks) -> Numbers:
            return table(str(folder / f"{name}.table"), pairs.sides, blocks, None)

        sentences = sorted_keys("sentences", lambda: self._pair_keys(pairs, longest))
        self.hashes = sorted_keys("candidates", lambda: _distinct_keys(sentences))  # (m,) length, hash
        self.lines = self._lines(pairs, longest, folder)  # (m,) the first line of each sentence
        lengths = self.random.range
        bounds = [self._keys(bound, np.zeros(1, np.uint64)) for bound in (lengths.least, lengths.most + 1)]
        self.bounds = np.searchsorted(self.hashes, np.stack(bounds, axis=1))  # of sentences in the range of each length

    def _keys(self, lengths: Numbers, hashes: Numbers) -> Numbers:
        """Keys (n,) uint64 of sentences: the length (n,) in the high bits, then the high bits of the hash (n,)."""
        return lengths.astype(np.uint64) << (np.uint64(64) - self.length_bits) | hashes >> self.length_bits

    def _pair_keys(self, pairs: SentencePairs, longest: int) -> Iterator[Numbers]:
        """Yields the `_keys` (b,) of the second sentences of all pairs with sides of at most `longest` tokens."""
        for first, sizes in pairs.blocks():
            fits = ((sizes > 1) & (sizes <= longest)).all(axis=1)
            yield self._keys(sizes[fits, 1], hashes_of_block(self.side, first, first + len(sizes))[fits])

    def _lines(self, pairs: SentencePairs, longest: int, folder: Path) -> Numbers:
        """The first line of each sentence, (m,), of any pair, in a temporary file."""
        result = full(folder, np.int64, -1, len(self.hashes))
        for first, sizes in pairs.blocks():
            usable = np.flatnonzero((sizes > 1).all(axis=1) & (sizes[:, 1] <= longest))
            keys = self._keys(sizes[usable, 1], hashes_of_block(self.side, first, first + len(sizes))[usable])
            keys, firsts = np.unique(keys, return_index=True)
            indices = np.searchsorted(self.hashes, keys).clip(max=len(result) - 1)
            is_new = (self.hashes[indices] == keys) & (result[indices] < 0)
            result[indices[is_new]] = first + usable[firsts[is_new]]
        return result


def _distinct_keys(keys: Numbers) -> Iterator[Numbers]:
    """Yields the distinct keys among sorted keys (n,), in blocks."""
    for start in range(0, len(keys), BLOCK_ROWS):
        block = np.asarray(keys[max(0, start - 1) : start + BLOCK_ROWS])
        new = np.flatnonzero(block[1:] != block[:-1]) + 1
        yield block[new] if start else np.append(block[:1], block[new])


def nearest_negatives(
    index: Any, queries: np.ndarray, lines: Numbers, pool: Pool, count: int
) -> tuple[Numbers, np.ndarray]:
    """The `count` most similar negatives of the pairs `lines` (b,) with source vectors `queries` (b, C).

    Their lengths are in the `LengthRange` of the translation's length, or any if no sentence in range is a negative.

    Returns: lines of the second side (b, count), padded with -1, and similarities (b, count).
    Raises `UserError` for a pair without a negative.
    """
    negatives = np.full((len(lines), count), -1, dtype=np.int64)
    similarities = np.full((len(lines), count), -np.inf, dtype=np.float32)
    bounds = pool.bounds[pool.side.sizes[lines]]  # (b, 2)
    for any_length in (False, True):
        open_rows = np.flatnonzero(negatives[:, 0] < 0)
        if any_length:
            bounds[open_rows] = 0, len(pool.lines)
        for first, end in np.unique(bounds[open_rows], axis=0).tolist():
            rows = open_rows[(bounds[open_rows] == (first, end)).all(axis=1)]
            result = _nearest_within(index, queries[rows], lines[rows], pool, (first, end), count)
            negatives[rows], similarities[rows] = result
    if (negatives[:, 0] < 0).any():
        raise pool.candidates.no_negative(lines[np.argmax(negatives[:, 0] < 0)])
    return negatives, similarities


def _nearest_within(
    index: Any, queries: np.ndarray, lines: Numbers, pool: Pool, bounds: tuple[int, int], count: int
) -> tuple[Numbers, np.ndarray]:
    """`nearest_negatives` among the sentences of the pool within `bounds` (first, end)."""
    negatives = np.full((len(lines), count), -1, dtype=np.int64)
    similarities = np.full((len(lines), count), -np.inf, dtype=np.float32)
    open_rows, size, probes = np.arange(len(lines)), count + SPARE, PROBES
    limit = bounds[1] - bounds[0]
    while len(open_rows) and limit:
        size = min(size, limit)
        parameters = search_parameters(index, probes, import_faiss().IDSelectorRange(*bounds))
        similarity, candidates = index.search(queries[open_rows], size, params=parameters)
        candidates = np.where(candidates >= 0, pool.lines[candidates], -1)
        usable = pool.candidates.are_negatives(lines[open_rows], candidates)
        order = np.argsort(~usable, axis=1, kind="stable")[:, :count]
        for result, block, missing in ((negatives, candidates, -1), (similarities, similarity, -np.inf)):
            values = np.where(usable, block, missing)
            result[open_rows, : order.shape[1]] = np.take_along_axis(values, order, axis=1)
        everywhere = size == limit and probes >= getattr(index, "nlist", 0)
        enough = everywhere | (usable.sum(1) >= count)
        open_rows, size, probes = open_rows[~enough], 4 * size, 4 * probes
    return negatives, similarities


def mine(
    embed: SentenceVectors, pairs: SentencePairs, count: int, exact_below: int, longest: int, made_with: dict[str, Any]
) -> dict[str, Any]:
    """Mines the negatives of one language pair and split, writes them beside it, and returns their statistics.

    Sentences of more than `longest` tokens neither get `count` negatives nor are negatives; `exact_below` is as in
    `build_index`. A whole or partial result with an equal `made_with` is reused.
    """
    made_with = made_with | {"text": pairs.fingerprint, "count": count, "exact_below": exact_below, "length": longest}
    folder, path = Path(f"{pairs.prefix}.negatives.part"), negatives_file(pairs.prefix)
    statistics_file = Path(f"{pairs.prefix}.negatives.json")
    try:
        read_negatives(pairs)
    except UserError:  # they are missing or not complete
        note = {}
    else:
        note = read_note(statistics_file) or {}
    change = difference(note.get("made_with"), made_with)
    if not change:
        result = {name: value for name, value in note.items() if name not in ("format", "fingerprints")}
        logger.info("%s is there already", path)
    else:
        if path.exists():
            logger.warning("%s: the negatives of another network, text or setting are replaced (%s)", path, change)
        begin_parts(folder, made_with)
        pool = Pool(pairs, longest, folder)
        negatives = _empty_negatives(folder, pairs.lines, count)
        statistics = Statistics(pairs, longest, folder)
        for lines, part in _mine_parts(embed, pairs, count, exact_below, longest, folder, pool):
            negatives[lines] = part["negatives"]
            statistics.add(lines, part)
        result = {"made_with": made_with, "prefix": pairs.prefix} | statistics.result(len(pool.lines))
        statistics_file.unlink(missing_ok=True)  # the old ones, before the negatives of new ones are there
        with replacing(path) as file:
            np.save(file, negatives)
        note = {"format": FORMATS["note of added files"], **result, "fingerprints": {path.name: fingerprint(path)}}
        write_json(statistics_file, note)
    shutil.rmtree(folder, ignore_errors=True)  # a killed run may have left it beside the result
    return result


def _empty_negatives(folder: Path, lines: int, count: int) -> Numbers:
    """A temporary file of negatives (lines, count), all -1."""
    return full(folder, np.int32 if lines < 2**31 else np.int64, -1, lines, count)


def _chunks(pairs: SentencePairs, longest: int) -> Iterator[Numbers]:
    """Yields the lines (c,) of each part file: of pairs with sides of at most `longest` tokens."""
    size = PART_CHUNKS * LINES_AT_ONCE
    pending = np.zeros(0, np.int64)
    for first, sizes in pairs.blocks():
        usable = first + np.flatnonzero(((sizes > 1) & (sizes <= longest)).all(axis=1))
        pending = np.concatenate((pending, usable))
        whole = len(pending) // size * size
        yield from pending[:whole].reshape(-1, size)
        pending = pending[whole:]
    if len(pending):
        yield pending


def _mine_parts(
    embed: SentenceVectors, pairs: SentencePairs, count: int, exact_below: int, longest: int, folder: Path, pool: Pool
) -> Iterator[tuple[Numbers, dict[str, np.ndarray]]]:
    """Yields lines and results of `_mine_part` for each part of the pairs, from its file if it has one."""
    index, start = None, 0
    total = sum(int(((sizes > 1) & (sizes <= longest)).all(axis=1).sum()) for _, sizes in pairs.blocks())
    for lines in _chunks(pairs, longest):
        path = folder / f"{start:012}-{len(lines)}.npz"  # parts of another size have other names
        part: Any = read_arrays(path)
        if part is None:
            if index is None:
                index = build_index(embed, pairs.sides[1], pool.lines, exact_below, folder / "index")
            results = []
            for first in range(0, len(lines), LINES_AT_ONCE):
                part = lines[first : first + LINES_AT_ONCE]
                results.append(_mine_part(embed, pairs, part, pool, index, count))
                last = start + min(first + LINES_AT_ONCE, len(lines))
                logger.info("%s: %d of %d sentences", pairs.prefix, last, total)
            part = {name: np.concatenate([result[name] for result in results]) for name in results[0]}
            write_arrays(path, **part)
        yield lines, part
        start += len(lines)


def _mine_part(
    embed: SentenceVectors, pairs: SentencePairs, lines: Numbers, pool: Pool, index: Any, count: int
) -> dict[str, np.ndarray]:
    """Mined (b, count) and random (b,) negatives of the pairs `lines` (b,), and similarities (b,)."""
    queries = embed(pairs.sides[0], lines)
    negatives, similarities = nearest_negatives(index, queries, lines, pool, count)
    keys = np.random.default_rng(lines[0]).integers(2**64, size=len(lines), dtype=np.uint64)
    sample = pool.random.choose(lines, keys)
    targets = embed(pairs.sides[1], np.concatenate((lines, sample))).reshape(2, len(lines), -1)
    translations, randoms = (np.einsum("bc,bc->b", queries, side) for side in targets)
    similar = {"mined": similarities[:, 0], "translations": translations, "random": randoms}
    return {"negatives": negatives, "random_negatives": sample} | similar


class Statistics:
    """Counts, mean similarities, separability by length, share of negatives nearer than translations."""

    def __init__(self, pairs: SentencePairs, longest: int, folder: Path):
        self.sides, self.pairs, self.nearer = pairs.sides, 0, 0
        self.similarity = dict.fromkeys(("translations", "mined", "random"), 0.0)
        #: counts of pairs by the lengths of the source and of the target sentence
        self.lengths = {name: np.zeros((longest + 1, longest + 1), np.int64) for name in self.similarity}
        self.uses = full(folder, np.int64, 0, pairs.lines)

    def add(self, lines: Numbers, part: dict[str, np.ndarray]) -> None:
        """Adds pairs `lines` (b,) with the result of `_mine_part`."""
        self.pairs += len(lines)
        self.nearer += int((part["mined"] > part["translations"]).sum())
        np.add.at(self.uses, part["negatives"][part["negatives"] >= 0], 1)
        sources = self.sides[0].sizes[lines]
        targets = {"translations": lines, "mined": part["negatives"][:, 0], "random": part["random_negatives"]}
        for name, target_lines in targets.items():
            self.similarity[name] += float(part[name].sum(dtype=np.float64))
            np.add.at(self.lengths[name], (sources, self.sides[1].sizes[target_lines]), 1)

    def result(self, candidates: int) -> dict[str, Any]:
        """The statistics; `candidates` is the number of distinct second sentences."""
        translations, starts = self.lengths["translations"], range(0, len(self.uses), BLOCK_ROWS)
        return {
            "pairs": self.pairs,
            "candidates": candidates,
            "similarity": {name: round(value / self.pairs, 4) for name, value in self.similarity.items()},
            "length_separability": {
                name: length_separability(translations, self.lengths[name]) for name in ("mined", "random")
            },
            "nearer_than_translation": round(100 * self.nearer / self.pairs, 2),
            "most_uses_of_one": max(int(self.uses[first : first + BLOCK_ROWS].max()) for first in starts),
        }


def length_separability(translations: Numbers, negatives: Numbers) -> float:
    """Accuracy, in percent, of the best threshold on |log(length / source's length)| for negatives; 50 is guessing.

    There are as many translations and negatives, counts of pairs by lengths of the source and of the target, (L, L).
    """
    sources, targets = np.nonzero(translations + negatives)
    ratios = np.maximum(sources, targets) / np.minimum(sources, targets)
    values, which = np.unique(ratios, return_inverse=True)
    weights = (translations - negatives)[sources, targets]
    lead = np.cumsum(np.bincount(which.reshape(-1), weights=weights, minlength=len(values)))  # below each threshold
    return round(50 + 50 * float(np.abs(lead).max()) / int(translations.sum()), 2)


def prefixes(task: Any, data: str, split: str) -> list[Path]:
    """Prefixes of a split's language pairs in all shards; raises `UserError` without any."""
    names = task.first_folder.pairs(split)
    if not names:
        raise UserError(f"{data}: no language pair has the split {split!r}")
    folders = data_folders(data)
    if split != "train":
        folders = folders[:1]  # validation reads no other
    paths = [folder / name / f"{split}.{name}" for folder in folders for name in names]
    return [prefix for prefix in paths if any(is_begun(f"{prefix}.{code}") for code in prefix.parent.name.split("-"))]
