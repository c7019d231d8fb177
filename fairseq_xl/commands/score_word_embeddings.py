"""Compares the embeddings of translated words (Lample & Conneau 2019, section 4.5).

The embedding of a word is the mean of its pieces' rows in the embedding matrix. EMBEDDINGS is a checkpoint, a .npz of
`fairseq-xl join-embeddings` or `skipgram`, or XX=FILE.npz,YY=FILE.npz, a file for each language. The command prints one
JSON line. For each dictionary: mean cosine, mean L2 distance, and the share of pairs whose translation is the nearest
of the dictionary's translations by cosine, each with a 95 % bootstrap interval. The same over the pairs without a
common piece (`no_common_piece`). The same means over random pairs of its words, without intervals. For each similarity
file: Pearson's correlation times 100. Pairs with a word that has an unknown piece are left out and counted.
"""

import argparse
import json
import sys
from typing import Any

import numpy as np

from fairseq_xl.data.store.shards import first_folder
from fairseq_xl.errors import UserError, language_pair, named_values
from fairseq_xl.evaluation.word_embeddings import (
    dictionary_scores,
    read_dictionary,
    read_similarities,
    similarity_scores,
)
from fairseq_xl.io.versions import version


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    options = _parser().parse_args(arguments)
    dictionaries = {pair: read_dictionary(path) for pair, path in _paths(options.dictionaries, "DICTIONARY").items()}
    rated = {}
    for pair, paths in _paths(options.similarity, "DATA:GOLD").items():
        data, _, gold = paths.partition(":")
        if not gold:
            raise UserError(f"--similarity {pair}={paths}: expected XX-YY=DATA:GOLD, the words and their ratings")
        rated[pair] = read_similarities(data, gold)
    from fairseq_xl.embeddings.words import WordEmbeddings  # it imports torch, for which --help does not wait

    embeddings = WordEmbeddings(_files(options.embeddings), first_folder(options.data))
    versions = {package: version(package) for package in ("fairseq_xl", "numpy", "sentencepiece")}
    result: dict[str, Any] = {"versions": versions, "dictionaries": {}, "similarity": {}}
    for pair, words in dictionaries.items():
        languages = pair.split("-")
        indices, source, target = embeddings.pairs(words, languages)
        no_common_piece = np.array([embeddings.have_no_common_piece(words[index], languages) for index in indices])
        scores = dictionary_scores(no_common_piece, source, target)
        result["dictionaries"][pair] = {"left_out": len(words) - len(indices)} | scores
    for pair, (words, ratings) in rated.items():
        indices, source, target = embeddings.pairs(words, pair.split("-"))
        scores = similarity_scores(source, target, [ratings[index] for index in indices])
        result["similarity"][pair] = {"left_out": len(words) - len(indices)} | scores
    sys.stdout.write(json.dumps(result) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("fairseq-xl score word-embeddings", description=__doc__)
    parser.add_argument("embeddings", metavar="EMBEDDINGS", help="checkpoint, .npz, or XX=FILE.npz,YY=FILE.npz")
    parser.add_argument("data", help="data folder with its dict.txt and its sub-words")
    parser.add_argument("dictionaries", nargs="+", metavar="XX-YY=DICTIONARY", help="file of word pairs, one a line")
    parser.add_argument(
        "--similarity",
        nargs="*",
        default=[],
        metavar="XX-YY=DATA:GOLD",
        help="word pairs and ratings, as SemEval-2017 task 2 has them",
    )
    return parser


def _paths(arguments: list[str], what: str) -> dict[str, str]:
    """Arguments XX-YY=FILE -> {"XX-YY": FILE}."""
    files = named_values("", arguments, f"XX-YY={what}")
    for pair, path in files.items():
        language_pair(f"{pair}={path}", pair)
    return files


def _files(argument: str) -> dict[str | None, str]:
    """FILE, or XX=FILE,YY=FILE -> {language or None: file}."""
    if "=" not in argument:
        return {None: argument}
    files: dict[str | None, str] = {}
    for part in argument.split(","):
        language, _, file = part.partition("=")
        if not language or not file or language in files:
            raise UserError(f"{argument}: expected XX=FILE.npz,YY=FILE.npz, each language once")
        files[language] = file
    return files
