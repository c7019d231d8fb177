"""Hard negatives for paraphrase classification (Unicoder, U5): ``python -m fairseq_xl.mining CHECKPOINT DATA``.

For every sentence X of a binarised language pair the other language's sentences that a deep averaging network (xl_dan,
trained with `paraphrase_similarity`) finds most similar: never its translation, nor one of another copy of X, nor X
itself. Writes DATA/en-de/train.en-de.negatives.npz, which `paraphrase.negatives=mined` reads, and prints a JSON line of
statistics for every pair and split. Stopped, it goes on where it was; what is there already is not mined again. Memory:
2 kB for every different sentence of the second side, at 512 channels.
"""

import argparse
import hashlib
import json
import logging
import shutil
import sys
import zlib
from pathlib import Path

import numpy as np
import torch
from fairseq import checkpoint_utils

from fairseq_xl import compat
from fairseq_xl.data.framing import pad_rows
from fairseq_xl.data.negatives import fingerprint, negatives_file
from fairseq_xl.data.parallel import SentencePairs
from fairseq_xl.errors import UserError
from fairseq_xl.models.averaging import XLAveragingModel
from fairseq_xl.retrieval import batches

logger = logging.getLogger(__name__)

CHUNK = 8192  # sentences between two notes of progress
BATCH_TOKENS = 65536
SPARE = 8  # candidates looked up for a sentence in addition to the wanted ones, of which some are translations
PROBES = 32  # cells that an approximate search looks into first


class SentenceVectors:
    """The deep averaging network of a checkpoint.

    Args:
        checkpoint: its file.
        data: the folder of binarised text with the dictionary that it was trained with.
        pairs: language pairs of the folder, separated by commas; None for all.
    """

    def __init__(self, checkpoint, data, pairs=None):
        models, _, self.task = checkpoint_utils.load_model_ensemble_and_task(
            [str(checkpoint)], arg_overrides={"data": str(data), "pairs": pairs}
        )
        if not isinstance(models[0], XLAveragingModel):
            raise UserError(f"{checkpoint}: mining needs {XLAveragingModel.described}")
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = models[0].to(self.device).eval()

    @torch.no_grad()
    def __call__(self, side, lines):
        """The sentences of a binarised text in these `lines`, (n,), as vectors, (n, C) float32."""
        found = np.empty((len(lines), self.model.cfg.embed_dim), dtype=np.float32)
        for batch in batches(np.asarray(side.sizes)[lines], BATCH_TOKENS):
            words = pad_rows([side[lines[index]].numpy()[:-1] for index in batch], self.model.pad)
            found[batch] = self.model.vectors(torch.from_numpy(words).to(self.device)).float().cpu().numpy()
        return found


class Candidates:
    """All different sentences of the second side, and which of them are no negative of which sentence.

    Args:
        pairs: the `SentencePairs`.
    """

    def __init__(self, pairs):
        self.lines = pairs.filled
        contents = [_contents(side, self.lines) for side in pairs.sides]
        (source, target), kinds = _numbered(*contents)
        self.source, self.target = source, target  # (n,) number of the content of either side
        self.kinds = kinds
        self.sentences, first = np.unique(target, return_index=True)  # (m,) contents of the candidates
        self.representatives = self.lines[first]  # (m,) a line of each
        self.translations = np.unique(source * kinds + target)

    def are_negatives(self, rows, candidates):
        """Pairs `rows` (b,) and numbers of candidates (b, k), -1 for none -> (b, k) bool."""
        contents, source = self.sentences[candidates], self.source[rows, None]
        translation = np.isin(source * self.kinds + contents, self.translations)
        return (candidates >= 0) & ~translation & (contents != source)


def _contents(side, lines):
    """(n,) uint64 that tell sentences apart by their tokens."""
    digests = (hashlib.blake2b(side[line].numpy().tobytes(), digest_size=8).digest() for line in lines)
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


def _numbered(*sides):
    """Contents of both sides, (n,) each -> the same as numbers from 0 on, (2, n), and how many there are."""
    values, numbers = np.unique(np.concatenate(sides), return_inverse=True)
    return numbers.reshape(len(sides), -1), len(values)


def build_index(vectors, exact_below):
    """An index for inner products with m vectors, (m, C): exact for fewer than `exact_below`, else approximate."""
    faiss = _faiss()
    if len(vectors) < exact_below:
        index = faiss.IndexFlatIP(vectors.shape[1])
    else:
        cells = int(4 * len(vectors) ** 0.5)
        index = faiss.IndexIVFFlat(
            faiss.IndexFlatIP(vectors.shape[1]), vectors.shape[1], cells, faiss.METRIC_INNER_PRODUCT
        )
        index.train(vectors)
    index.add(vectors)
    return index


def _faiss():
    try:
        import faiss
    except ImportError:
        raise UserError("mining needs the package faiss: pip install 'fairseq_xl[mining]'") from None
    return faiss


def nearest_negatives(index, queries, rows, candidates, count):
    """The `count` most similar negatives of the pairs `rows` (b,) with source vectors `queries` (b, C).

    Returns: numbers of candidates (b, count), -1 where there are no more, and similarities (b, count).
    Raises `UserError` for a pair that has no negative at all.
    """
    numbers = np.full((len(rows), count), -1, dtype=np.int64)
    similarities = np.full((len(rows), count), -np.inf, dtype=np.float32)
    left, wanted, probes = np.arange(len(rows)), count + SPARE, PROBES
    while len(left):
        wanted = min(wanted, index.ntotal)
        if hasattr(index, "nprobe"):
            index.nprobe = min(probes, index.nlist)
        similarity, found = index.search(queries[left], wanted)
        usable = candidates.are_negatives(rows[left], found)
        order = np.argsort(~usable, axis=1, kind="stable")[:, :count]
        for whole, part, nothing in ((numbers, found, -1), (similarities, similarity, -np.inf)):
            chosen = np.where(usable, part, nothing)
            whole[left, : order.shape[1]] = np.take_along_axis(chosen, order, axis=1)
        everywhere = wanted == index.ntotal and probes >= getattr(index, "nlist", 0)
        if everywhere and not usable.any(1).all():
            line = candidates.lines[rows[left[~usable.any(1)][0]]] + 1
            raise UserError(f"there is no negative for line {line}: every sentence is its translation")
        enough = everywhere | (usable.sum(1) >= count)
        left, wanted, probes = left[~enough], 4 * wanted, 4 * probes
    return numbers, similarities


def mine(vectors, pairs, count, exact_below, made_with):
    """Mines the negatives of one language pair and split, and writes them beside it.

    Args:
        vectors: `SentenceVectors`, or anything that is called like it.
        pairs: the `SentencePairs`.
        count: negatives for each sentence.
        exact_below: search exactly where there are fewer different sentences than this.
        made_with: dict of what the result depends on; a result or a begun one that was made with the same is used.

    Returns: the statistics, a dict.
    """
    final, folder = negatives_file(pairs.prefix), Path(f"{pairs.prefix}.negatives.part")
    made_with = made_with | {"text": fingerprint(pairs.sizes), "count": count, "exact_below": exact_below}
    statistics = Path(f"{pairs.prefix}.negatives.json")
    if final.is_file() and statistics.is_file():
        before = json.loads(statistics.read_text())
        if before["made_with"] == made_with:
            logger.info("%s is there already", final)
            return before
    _begin(folder, made_with)
    candidates = Candidates(pairs)
    index = build_index(vectors(pairs.sides[1], candidates.representatives), exact_below)
    for start in range(0, len(candidates.lines), CHUNK):
        rows, part = np.arange(start, min(start + CHUNK, len(candidates.lines))), folder / f"{start:012}.npz"
        if not part.is_file():
            _mine_part(vectors, pairs, candidates, index, rows, count, part)
        logger.info("%s: %d of %d sentences", pairs.prefix, rows[-1] + 1, len(candidates.lines))
    parts = [_read_part(part) for part in sorted(folder.glob("*.npz"))]
    result = {"made_with": made_with, "prefix": pairs.prefix} | _statistics(parts, candidates)
    negatives = np.full((len(pairs.sizes), count), -1, dtype=np.int32)
    negatives[candidates.lines] = np.concatenate([part["negatives"] for part in parts])
    with compat.replacing(final) as file:
        np.savez(file, negatives=negatives, text=made_with["text"])
    with compat.replacing(statistics) as file:
        file.write(json.dumps(result, indent=1).encode() + b"\n")
    shutil.rmtree(folder)
    return result


def _begin(folder, made_with):
    """A folder for parts; those that were made with something else are removed."""
    note = folder / "made_with.json"
    if not note.is_file() or json.loads(note.read_text()) != made_with:
        if folder.is_dir():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        with compat.replacing(note) as file:
            file.write(json.dumps(made_with).encode())


def _mine_part(vectors, pairs, candidates, index, rows, count, path):
    """Mines the pairs `rows` and writes their negatives, and their similarities to three kinds of sentences."""
    lines = candidates.lines[rows]
    queries = vectors(pairs.sides[0], lines)
    numbers, similarities = nearest_negatives(index, queries, rows, candidates, count)
    negatives = np.where(numbers >= 0, candidates.representatives[numbers], -1)
    others = np.random.default_rng(rows[0]).choice(candidates.representatives, len(rows))
    translations, random = (np.einsum("bc,bc->b", queries, vectors(pairs.sides[1], each)) for each in (lines, others))
    with compat.replacing(path) as file:
        np.savez(file, negatives=negatives, mined=similarities[:, 0], translations=translations, random=random)


def _read_part(path):
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def _statistics(parts, candidates):
    """Numbers of sentences, mean similarities, per cent of the pairs whose negative is nearer than the translation."""
    whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    used = np.unique(whole["negatives"][whole["negatives"] >= 0], return_counts=True)[1]
    return {
        "pairs": len(candidates.lines),
        "candidates": len(candidates.representatives),
        "similarity": {name: round(float(whole[name].mean()), 4) for name in ("translations", "mined", "random")},
        "nearer_than_translation": round(100 * float((whole["mined"] > whole["translations"]).mean()), 2),
        "different_negatives": len(used),
        "most_uses_of_one": int(used.max()),
    }


def main(arguments=None):
    """The command."""
    options = _parser().parse_args(arguments)
    if options.count < 1:
        raise UserError(f"--count {options.count}: a sentence needs one negative or more")
    vectors = SentenceVectors(options.checkpoint, options.data, options.pairs)
    made_with = {"checkpoint": zlib.crc32(Path(options.checkpoint).read_bytes())}
    for split in options.splits.split(","):
        names = vectors.task.language_pairs(split)
        if not names:
            raise UserError(f"{options.data}: no language pair has the split {split!r}")
        for name in names:
            pairs = SentencePairs(Path(options.data) / name / f"{split}.{name}", *name.split("-"))
            result = mine(vectors, pairs, options.count, options.exact_below, made_with)
            sys.stdout.write(json.dumps(result) + "\n")
            sys.stdout.flush()


def _parser():
    parser = argparse.ArgumentParser(prog="python -m fairseq_xl.mining", description=__doc__)
    parser.add_argument("checkpoint", help="checkpoint of --arch xl_dan")
    parser.add_argument("data", help="folder of binarised text")
    parser.add_argument("--pairs", help="language pairs, separated by commas (default: all that are there)")
    parser.add_argument("--splits", default="train,valid", help="splits, separated by commas (default: train,valid)")
    parser.add_argument("--count", type=int, default=1, help="negatives for each sentence; one of them is drawn")
    parser.add_argument(
        "--exact-below", type=int, default=100000, help="search exactly in fewer different sentences than this"
    )
    return parser


if __name__ == "__main__":
    logging.basicConfig(format="%(asctime)s | %(levelname)s | %(name)s | %(message)s", level=logging.INFO)
    main()
