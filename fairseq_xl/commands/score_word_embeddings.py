"""Compares the embeddings of translated words (Lample & Conneau 2019, section 4.5).

    fairseq-xl score word-embeddings runs/my/joint.npz data-bin/my en-de=dictionary.txt

The embedding of a word is the mean of its pieces' rows in the embedding matrix. EMBEDDINGS is a checkpoint, a .npz of
`fairseq-xl embeddings join` or `skipgram`, or XX=FILE.npz,YY=FILE.npz, a file for each language. Prints for each
dictionary: mean cosine, mean L2 distance, and the share of pairs whose translation is the nearest of the dictionary's
translations by cosine, each with a 95 % bootstrap interval. The same over the pairs without a common piece
(`no_common_piece`). The same means over random pairs of its words, without intervals. For each similarity file:
Pearson's correlation times 100. Pairs with a word that has an unknown piece are left out and counted.
"""

from typing import Any

import numpy as np

from fairseq_xl.commands import DATA, Options, argument, command
from fairseq_xl.data.store.manifest import data_folders
from fairseq_xl.errors import UserError, language_pair, named_values
from fairseq_xl.evaluation import word_embeddings
from fairseq_xl.io.versions import version


@command(
    argument("embeddings", "checkpoint, .npz, or XX=FILE.npz,YY=FILE.npz"),
    DATA,
    argument("dictionaries", "file of word pairs, one a line", nargs="+", metavar="XX-YY=DICTIONARY"),
    argument(
        "--similarity",
        "word pairs and ratings, as SemEval-2017 task 2 has them",
        default=[],
        nargs="*",
        metavar="XX-YY=DATA:GOLD",
    ),
)
def main(options: Options) -> dict[str, Any]:
    dictionaries = {
        pair: word_embeddings.read_dictionary(path) for pair, path in _paths(options.dictionaries, "DICTIONARY").items()
    }
    rated = {}
    for pair, paths in _paths(options.similarity, "DATA:GOLD").items():
        data, _, gold = paths.partition(":")
        if not gold:
            raise UserError(f"--similarity {pair}={paths}: expected XX-YY=DATA:GOLD, the words and their ratings")
        rated[pair] = word_embeddings.read_similarities(data, gold)
    from fairseq_xl.embeddings.words import WordEmbeddings  # it imports torch, for which --help does not wait

    files: dict[str | None, str] = {None: options.embeddings}
    if "=" in options.embeddings:
        form = "XX=FILE.npz,YY=FILE.npz, each language once"
        files = dict(named_values("EMBEDDINGS", options.embeddings.split(","), form).items())
    embeddings = WordEmbeddings(files, data_folders(options.data)[0])
    versions = {package: version(package) for package in ("fairseq_xl", "numpy", "sentencepiece")}
    result: dict[str, Any] = {"versions": versions, "dictionaries": {}, "similarity": {}}
    for pair, words in dictionaries.items():
        languages = pair.split("-")
        indices, source, target = embeddings.pairs(words, languages)
        no_common_piece = np.array([embeddings.have_no_common_piece(words[index], languages) for index in indices])
        scores = word_embeddings.dictionary_scores(no_common_piece, source, target)
        result["dictionaries"][pair] = {"left_out": len(words) - len(indices)} | scores
    for pair, (words, ratings) in rated.items():
        indices, source, target = embeddings.pairs(words, pair.split("-"))
        scores = word_embeddings.similarity_scores(source, target, [ratings[index] for index in indices])
        result["similarity"][pair] = {"left_out": len(words) - len(indices)} | scores
    return result


def _paths(arguments: list[str], what: str) -> dict[str, str]:
    files = named_values("", arguments, f"XX-YY={what}")
    for pair, path in files.items():
        language_pair(f"{pair}={path}", pair)
    return files
