"""Hard negatives for paraphrase classification (Huang et al. 2019, section 3).

A negative of a sentence X of a binarized language pair is a sentence of the other language with a similar embedding,
by a deep averaging network (xl_dan, trained with `paraphrase_similarity`). It is never the translation of X or of
another copy of X, nor X itself. It is about as long as the translation, as random negatives are: otherwise length alone
would reveal most negatives. If no sentence of these lengths is a negative, one of another length is taken.

Memory: an exact index, for fewer than --exact-below distinct sentences of the second side, holds 2 kB for each at 512
channels, and twice that while it grows. The vectors of a larger index are on the disk (`fairseq_xl.disk_index`), beside
the result until it is complete.
The command is `fairseq-xl mine-negatives`.
"""

import logging
import shutil
from pathlib import Path

import numpy as np
import torch

from fairseq_xl import load
from fairseq_xl.data.arrays import read_arrays
from fairseq_xl.data.framing import pad_rows
from fairseq_xl.data.indexed import is_begun
from fairseq_xl.data.negatives import RandomNegatives, Reach, negatives_file, read_negatives
from fairseq_xl.data.shards import data_folders
from fairseq_xl.disk_index import disk_index, search_parameters
from fairseq_xl.errors import UserError
from fairseq_xl.io import parts as parts_folder
from fairseq_xl.io.files import read_json, replacing, write_json
from fairseq_xl.models.dan import XLDANModel
from fairseq_xl.nearest import import_faiss
from fairseq_xl.retrieval import batches

logger = logging.getLogger(__name__)

CHUNK = 8192  # sentences between two notes of progress
BATCH_TOKENS = 65536
SPARE = 8  # extra candidates looked up for each sentence, since some are translations
PROBES = 32  # cells that an approximate search looks into first


class SentenceVectors:
    """The deep averaging network of a checkpoint, as a function from sentences to sentence embeddings.

    Args:
        checkpoint: its file.
        data: the folder of binarized text with the dictionary that it was trained with.
        pairs: language pairs of the folder, separated by commas; None for those that it was trained with.
    """

    def __init__(self, checkpoint, data, pairs=None):
        model, self.task = load(checkpoint, data, **({"pairs": pairs} if pairs else {}))
        if not isinstance(model, XLDANModel):
            raise UserError(f"{checkpoint}: mining needs {XLDANModel.described}")
        self.channels = model.cfg.embed_dim
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = model.to(self.device)

    @torch.no_grad()
    def __call__(self, side, lines):
        """Sentence embeddings (n, C) float32 of these `lines` (n,) of a binarized text."""
        found = np.empty((len(lines), self.channels), dtype=np.float32)
        for batch in batches(np.asarray(side.sizes)[lines], BATCH_TOKENS):
            words = pad_rows([side[lines[index]].numpy()[:-1] for index in batch], self.model.pad)
            found[batch] = self.model.vectors(torch.from_numpy(words).to(self.device)).float().cpu().numpy()
        return found


def build_index(vectors, side, lines, exact_below, folder):
    """Builds an index of the sentences of a side in m `lines`, in their order, for inner products.

    Args:
        vectors: embeds sentences, as `SentenceVectors` does.
        exact_below: the index is exact for fewer sentences than this; otherwise it has cells, and a search visits some.
        folder: where the vectors of an index with cells are stored; one that is complete there is opened.
    """
    if len(lines) >= exact_below:
        return disk_index(folder, lambda rows: vectors(side, lines[rows]), len(lines), vectors.channels, CHUNK)
    index = import_faiss().IndexFlatIP(vectors.channels)
    for start in range(0, len(lines), CHUNK):
        index.add(vectors(side, lines[start : start + CHUNK]))
        logger.info("index: %d of %d distinct sentences", index.ntotal, len(lines))
    return index


class Pool:
    """The distinct sentences of the second side, sorted by length, which is the order of the index.

    Args:
        pairs: the `SentencePairs`.
        longest: maximum length of a sentence, in tokens; pairs with a longer one are left out.
    """

    def __init__(self, pairs, longest):
        self.candidates, self.lengths = pairs.candidates, pairs.sizes[:, 1]
        numbers = np.unique(self.candidates.number(pairs.fitting(longest)))
        sizes = self.lengths[self.candidates.representatives[numbers]]
        order = np.argsort(sizes, kind="stable")
        self.lines = self.candidates.representatives[numbers[order]]  # (m,)
        self.bounds = np.stack(Reach(pairs, longest).places(sizes[order]), axis=1)  # of sentences in reach, by length
        self.places = np.full(len(self.candidates.representatives), -1)
        self.places[numbers[order]] = np.arange(len(order))

    def place(self, lines):
        """Positions in the pool, (B,), of the second sentences of the pairs `lines` (B,)."""
        return self.places[self.candidates.number(lines)]


def nearest_negatives(index, queries, lines, pool, count):
    """The `count` most similar negatives of the pairs `lines` (b,) with source vectors `queries` (b, C).

    Their lengths are within `Reach` of the translation's length, or any if no sentence within reach is a negative.

    Returns: lines of the second side (b, count), -1 where there are no more, and similarities (b, count).
    Raises `UserError` for a pair that has no negative at all.
    """
    negatives = np.full((len(lines), count), -1, dtype=np.int64)
    similarities = np.full((len(lines), count), -np.inf, dtype=np.float32)
    bounds = pool.bounds[pool.lengths[lines]]  # (b, 2)
    for of_any_length in (False, True):
        left = np.flatnonzero(negatives[:, 0] < 0)
        if of_any_length:
            bounds[left] = 0, len(pool.lines)
        for first, end in np.unique(bounds[left], axis=0).tolist():
            rows = left[(bounds[left] == (first, end)).all(axis=1)]
            found = _nearest_within(index, queries[rows], lines[rows], pool, (first, end), count)
            negatives[rows], similarities[rows] = found
    if (negatives[:, 0] < 0).any():
        raise pool.candidates.no_negative(lines[np.argmax(negatives[:, 0] < 0)])
    return negatives, similarities


def _nearest_within(index, queries, lines, pool, bounds, count):
    """`nearest_negatives` among the sentences of the pool within `bounds` (first, end); -1 where there are none."""
    negatives = np.full((len(lines), count), -1, dtype=np.int64)
    similarities = np.full((len(lines), count), -np.inf, dtype=np.float32)
    left, wanted, probes = np.arange(len(lines)), count + SPARE, PROBES
    most = bounds[1] - bounds[0]
    while len(left) and most:
        wanted = min(wanted, most)
        similarity, found = index.search(queries[left], wanted, params=_parameters(index, bounds, probes))
        found = np.where(found >= 0, pool.lines[found], -1)
        usable = pool.candidates.are_negatives(lines[left], found)
        order = np.argsort(~usable, axis=1, kind="stable")[:, :count]
        for whole, part, nothing in ((negatives, found, -1), (similarities, similarity, -np.inf)):
            chosen = np.where(usable, part, nothing)
            whole[left, : order.shape[1]] = np.take_along_axis(chosen, order, axis=1)
        everywhere = wanted == most and probes >= getattr(index, "nlist", 0)
        enough = everywhere | (usable.sum(1) >= count)
        left, wanted, probes = left[~enough], 4 * wanted, 4 * probes
    return negatives, similarities


def _parameters(index, bounds, probes):
    """Parameters of a search among the sentences `bounds` (first, end) of an index, in `probes` of its cells."""
    return search_parameters(index, probes, import_faiss().IDSelectorRange(*bounds))


def mine(vectors, pairs, count, exact_below, longest, made_with):
    """Mines the negatives of one language pair and split, and writes them beside it.

    Args:
        vectors: `SentenceVectors`, or a callable like it with the attribute `channels`.
        pairs: the `SentencePairs`.
        count: negatives for each sentence.
        exact_below: use an exact index for fewer distinct sentences than this.
        longest: maximum length of a sentence, in tokens; longer ones neither get negatives nor are negatives.
        made_with: dict of everything that the result depends on; a whole or partial result with an equal one is reused.

    Returns: the statistics, a dict.
    """
    made_with = made_with | {"text": pairs.fingerprint, "count": count, "exact_below": exact_below, "length": longest}
    folder = Path(f"{pairs.prefix}.negatives.part")
    result = _statistics_of(pairs, made_with)
    if result is not None:
        logger.info("%s is there already", negatives_file(pairs.prefix))
    else:
        if negatives_file(pairs.prefix).exists():
            logger.warning("%s: the negatives of another network, text or setting are replaced", pairs.prefix)
        parts_folder.begin(folder, made_with)
        parts = list(_mine_parts(vectors, pairs, count, exact_below, longest, folder))
        whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        result = {"made_with": made_with, "prefix": pairs.prefix} | _summary(whole, pairs, longest)
        _write(pairs, longest, whole["negatives"], result)
    shutil.rmtree(folder, ignore_errors=True)  # a killed run may have left it beside the result
    return result


def _statistics_file(prefix):
    return Path(f"{prefix}.negatives.json")


def _statistics_of(pairs, made_with):
    """Statistics of the negatives in place; None unless they are complete and `made_with` is the same."""
    try:
        read_negatives(pairs)
    except UserError:
        return None
    found = read_json(_statistics_file(pairs.prefix))
    return found if isinstance(found, dict) and found.get("made_with") == made_with else None


def _mine_parts(vectors, pairs, count, exact_below, longest, folder):
    """Yields the result of `_mine_part` for each `CHUNK` of the pairs; writes them to a folder, or reads them there."""
    fitting, pool, random, index = pairs.fitting(longest), Pool(pairs, longest), RandomNegatives(pairs, longest), None
    for start in range(0, len(fitting), CHUNK):
        lines, path = fitting[start : start + CHUNK], folder / f"{start:012}.npz"
        part = read_arrays(path)
        if part is None:
            if index is None:
                index = build_index(vectors, pairs.sides[1], pool.lines, exact_below, folder / "index")
            part = _mine_part(vectors(pairs.sides[0], lines), lines, pool, random, index, count)
            with replacing(path) as file:
                np.savez(file, **part)
        yield part
        logger.info("%s: %d of %d sentences", pairs.prefix, start + len(lines), len(fitting))


def _mine_part(queries, lines, pool, random, index, count):
    """Mined (b, count) and random (b,) negatives of the pairs `lines` (b,) with source vectors (b, C), similarities."""
    negatives, similarities = nearest_negatives(index, queries, lines, pool, count)
    drawn = random.choose(lines, np.random.default_rng(lines[0]).integers(2**64, size=len(lines), dtype=np.uint64))
    translations, others = (
        np.einsum("bc,bc->b", queries, index.reconstruct_batch(pool.place(numbers))) for numbers in (lines, drawn)
    )
    similar = {"mined": similarities[:, 0], "translations": translations, "random": others}
    return {"negatives": negatives, "random_negatives": drawn} | similar


def _summary(whole, pairs, longest):
    """Numbers of sentences, mean similarities, separability by length, share of negatives nearer than translations."""
    lines, lengths = pairs.fitting(longest), pairs.sizes[:, 1]
    used = np.unique(whole["negatives"][whole["negatives"] >= 0], return_counts=True)[1]
    chosen = {"mined": whole["negatives"][:, 0], "random": whole["random_negatives"]}
    return {
        "pairs": len(lines),
        "candidates": len(np.unique(pairs.candidates.number(lines))),
        "similarity": {name: round(float(whole[name].mean()), 4) for name in ("translations", "mined", "random")},
        "length_separability": {
            name: length_separability(pairs.sizes[lines, 0], lengths[lines], lengths[negatives])
            for name, negatives in chosen.items()
        },
        "nearer_than_translation": round(100 * float((whole["mined"] > whole["translations"]).mean()), 2),
        "different_negatives": len(used),
        "most_uses_of_one": int(used.max()),
    }


def length_separability(sources, translations, negatives):
    """Accuracy, in percent, of telling translations from as many negatives by a threshold on their length alone.

    The threshold is the best one on |log(length / source's length)|; 50 is guessing.

    Args:
        sources, translations, negatives: lengths (n,).
    """
    ratios = [np.maximum(sources, others) / np.minimum(sources, others) for others in (translations, negatives)]
    values, places = np.unique(np.concatenate(ratios), return_inverse=True)
    signs = np.repeat([1, -1], len(sources))
    lead = np.cumsum(np.bincount(places.reshape(-1), weights=signs, minlength=len(values)))  # below each threshold
    return round(50 + 50 * float(np.abs(lead).max()) / len(sources), 2)


def _write(pairs, longest, found, result):
    """Writes the negatives (n, k) of all pairs, then their statistics: old statistics are removed first."""
    lines = len(pairs.sizes)
    negatives = np.full((lines, found.shape[1]), -1, dtype=np.int32 if lines < 2**31 else np.int64)
    negatives[pairs.fitting(longest)] = found
    _statistics_file(pairs.prefix).unlink(missing_ok=True)
    with replacing(negatives_file(pairs.prefix)) as file:
        np.savez(file, negatives=negatives, text=result["made_with"]["text"])
    write_json(_statistics_file(pairs.prefix), result)


def prefixes(task, data, split):
    """Prefixes of a split's language pairs, in every shard that has them; `UserError` if there is none."""
    names = task.language_pairs(split)
    if not names:
        raise UserError(f"{data}: no language pair has the split {split!r}")
    folders = data_folders(data)
    if split != "train":
        folders = folders[:1]  # validation reads no other
    found = [folder / name / f"{split}.{name}" for folder in folders for name in names]
    return [prefix for prefix in found if any(is_begun(f"{prefix}.{code}") for code in prefix.parent.name.split("-"))]
