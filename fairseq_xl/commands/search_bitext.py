"""Finds parallel sentences in the text of two languages with the encoder of a checkpoint, without training.

    fairseq-xl search bitext runs/my/pretrain/checkpoint_best.pt data-bin/my en=text.en de=text.de --layer 8
    fairseq-xl search bitext --embeddings en.npy de.npy en=text.en de=text.de --threshold 1.06 --output pairs

Sentences are compared by the ratio margin of their embeddings (Artetxe & Schwenk 2019). A line of a file is a sentence,
or ``id TAB sentence`` as in BUCC. Output lines: with --threshold ``id TAB id`` for pairs at or above the threshold;
with --gold the same at the threshold of the highest F1, which is printed with its F1; otherwise ``margin TAB id TAB
id`` for all pairs; with --nearest, for each source sentence, the id of the most similar target sentence (for XTREME's
Tatoeba the source is English). Without ids in the file, the id of a sentence is its line, from 0 on. A pair is a
sentence and its best candidate, in either direction. Pairs are taken in descending order of margin, and each sentence
is in one pair at most. A sentence that occurs several times in its file is in none.

A sentence encoder that was a folder of sentence-transformers embeds as `fairseq-xl embed` does, and needs no --layer.

--embeddings names the .npy files of `fairseq-xl embed` of both files, for embeddings that do not fit into memory: they
stay on disk. CHECKPOINT, DATA and --layer are then left out. Row N of a file belongs to line N of its text; of lines
``id TAB sentence``, embed the sentences alone (`cut -f2`).

The search is exact and compares every source with every target sentence. For millions of sentences, --index FOLDER
builds approximate (IVF) indices in FOLDER: a search compares a sentence with a part of the others and may miss a
neighbor. Memory is then bounded: it holds blocks of sentences and vectors, the pairs of --gold and, while an index is
built, at most 1,048,576 vectors (2 GiB at 512 channels) or 512 MiB of vectors, whichever is more. All else is in
temporary files in a new hidden folder in FOLDER, which is removed at the end, also on Ctrl-C and SIGTERM. The next run
removes what a killed one leaves. One index at a time is on the disk: about as large as its file of --embeddings, and
twice that while it is built. Without --embeddings, the embeddings are in the folder too. The rest takes up to twice the
size of the text, about 100 bytes for each sentence and 12 for each of its neighbors.
"""

import bisect
import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_xl.commands import BEAM_SIZE, Options, argument, command, embedding_options, flag
from fairseq_xl.errors import UserError, in_range
from fairseq_xl.evaluation.prediction_folders import check_noted_language, check_same_origin
from fairseq_xl.io.arrays import check_finite_rows, open_matrix
from fairseq_xl.io.files import write_lines
from fairseq_xl.io.folders import temporary_folder
from fairseq_xl.io.signals import ending_by_exception
from fairseq_xl.io.temporary_arrays import GrowingArray, slices
from fairseq_xl.mining import bitext_mining
from fairseq_xl.mining.disk_index import nearest_approximately
from fairseq_xl.mining.nearest_neighbors import Rows, nearest

NEIGHBORS = 4  # of a sentence
FILES = "LANGUAGE=FILE"
WORDS = ("CHECKPOINT", "DATA", FILES, FILES)
EMBEDDING_BLOCK = 10000  # sentences that are embedded at a time with --index
USAGE = f"""fairseq-xl search bitext {" ".join(WORDS)} --layer LAYER [OPTION ...]
       fairseq-xl search bitext --embeddings FILE.npy FILE.npy LANGUAGE=FILE LANGUAGE=FILE [OPTION ...]"""


@command(
    argument(
        "words",
        "checkpoint of any task, its data folder, source and target sentences",
        nargs="+",
        metavar=" ".join(WORDS),
    ),
    *embedding_options("not with --embeddings; default of --pooling: mean; of both: as in sentence-transformers"),
    argument("--embeddings", "embeddings of all lines of the source and the target file", nargs=2, metavar="FILE.npy"),
    argument("--index", "search approximately, with temporary on-disk indices in this folder", metavar="FOLDER"),
    argument("--neighbors", f"neighbors in the margin (default: {NEIGHBORS})", BEAM_SIZE),
    argument("--gold", "file of the correct pairs, id TAB id, to find the threshold with"),
    argument("--threshold", "minimum margin of a pair", in_range(float)),
    flag("--nearest", "write the most similar target sentence of each source sentence"),
    argument("--output", "file to write"),
    intermixed=True,  # the number of words depends on --embeddings
    usage=USAGE,
)
def main(options: Options) -> dict[str, Any]:
    expected = WORDS[2:] if options.embeddings else WORDS
    if len(options.words) != len(expected):
        raise UserError(f"expected {' '.join(expected)}, found {' '.join(options.words)}")
    embedding_options = options.pooling, options.prompt, options.language_module, options.fp16
    if options.embeddings and (options.layer is not None or any(embedding_options)):
        raise UserError(
            "--embeddings: leave out --layer, --pooling, --prompt, --language-module and --fp16, which are options of "
            "`fairseq-xl embed`"
        )
    if not options.embeddings and options.layer is None:
        from fairseq_xl.inference.embedder import has_settings

        if not has_settings(options.words[0]):
            raise UserError("the following arguments are required: --layer")
    if options.nearest and (options.gold or options.threshold is not None or options.neighbors is not None):
        raise UserError(
            "--nearest finds a sentence for each source sentence: leave out --gold, --threshold and --neighbors"
        )
    with _folder(options.index) as folder:
        return _run(options, folder)


@contextlib.contextmanager
def _folder(parent: str | None) -> Iterator[Path | None]:
    """A new folder in `parent`, removed at the end; None if `parent` is None. Raises `UserError` for a full disk."""
    if parent is None:
        yield None
        return
    with ending_by_exception(), contextlib.ExitStack() as stack:  # also where Python calls `main`
        try:
            os.makedirs(parent, exist_ok=True)
            folder = stack.enter_context(temporary_folder(Path(parent), "search-bitext"))
        except OSError as error:
            raise UserError(f"--index {parent}: cannot make or write to this folder: {error.strerror}") from error
        yield folder


def _run(options: Options, folder: Path | None) -> dict[str, Any]:
    sides = []
    for text in options.words[-2:]:
        language, _, path = text.partition("=")
        if not language or not path:
            raise UserError(f"{text}: expected {FILES}")
        sides.append((language, bitext_mining.read_sentences(path, folder)))
    (_, source_texts), (_, target_texts) = sides
    gold = bitext_mining.read_gold(options.gold, (source_texts, target_texts)) if options.gold else None
    if options.nearest and any(name != str(index) for index, name in enumerate(source_texts.ids)):
        raise UserError(f"{source_texts.path}: --nearest needs a sentence, without id, on each line")
    embeddings = _opened(options, sides) if options.embeddings else _embedded(options, sides, folder)
    results: dict[str, Any] = {"sentences": [len(source_texts.texts), len(target_texts.texts)]}
    if options.nearest:
        first, second = embeddings
        _, matches = nearest(first, second, 1) if folder is None else nearest_approximately(first, second, 1, folder)
        if options.output:
            rows = (matches[block, 0].tolist() for block in slices(len(matches)))
            write_lines(options.output, (target_texts.ids[index] for index in itertools.chain.from_iterable(rows)))
        return results
    texts = bitext_mining.distinct(source_texts.texts, folder), bitext_mining.distinct(target_texts.texts, folder)
    pairs = bitext_mining.mine_distinct(texts, embeddings, options.neighbors or NEIGHBORS, folder)
    threshold = options.threshold
    if gold is not None:
        best = bitext_mining.best_threshold(pairs, gold)
        results |= bitext_mining.rounded(best)
        threshold = best["threshold"] if threshold is None else threshold
    count = len(pairs)
    if threshold is not None:
        count = bisect.bisect_right(pairs, -threshold, key=lambda pair: -pair.margin)
    if options.output:
        lines = (
            (f"{margin:.{bitext_mining.DIGITS}f}\t" if threshold is None else "")
            + f"{source_texts.ids[source]}\t{target_texts.ids[target]}"
            for margin, source, target in itertools.islice(pairs, count)
        )
        write_lines(options.output, lines)
    return results | {"pairs": count}


def _embedded(options: Options, sides: list[tuple[str, bitext_mining.Sentences]], folder: Path | None) -> list[Any]:
    """The embeddings (n, C) of the sentences of each side, in files of a folder or in memory."""
    from fairseq_xl.inference.embedder import Embedders

    options.checkpoint, options.data = options.words[:2]
    embed = Embedders(options, {language for language, _ in sides})
    (choice,) = embed.choices(options.layer, options.pooling or embed.default.settings.pooling)
    if folder is None:
        return [embed(sentences.texts, language, [choice])[choice] for language, sentences in sides]
    matrices = []
    for language, sentences in sides:
        array = GrowingArray(folder, np.float32, embed.default.channels)
        for block in slices(len(sentences.texts), EMBEDDING_BLOCK):
            array.append(embed(sentences.texts[block], language, [choice])[choice])
        matrices.append(array.finish())
    return matrices


def _opened(options: Options, sides: list[tuple[str, bitext_mining.Sentences]]) -> list[Rows]:
    """The embeddings (n, C) of the sentences of each side, in files; raises `UserError` unless they fit the text."""
    check_same_origin(options.embeddings)
    matrices = [open_matrix(path) for path in options.embeddings]
    for path, matrix, (language, sentences) in zip(options.embeddings, matrices, sides):
        check_noted_language(path, language)
        if len(matrix) != sentences.total:
            raise UserError(f"{path} has {len(matrix)} rows, but {sentences.path} has {sentences.total} lines")
    (first, second), channels = options.embeddings, [matrix.shape[1] for matrix in matrices]
    if channels[0] != channels[1]:
        raise UserError(f"{first} has {channels[0]} columns, but {second} has {channels[1]}")
    for path, matrix in zip(options.embeddings, matrices):
        check_finite_rows(path, matrix)
    return [Rows(matrix, sentences.lines) for matrix, (_, sentences) in zip(matrices, sides)]
