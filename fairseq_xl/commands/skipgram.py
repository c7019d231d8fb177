"""Trains fastText's skip-gram embeddings of the pieces of a language with gensim (Artetxe et al. 2020, section 3.1)."""

import argparse
from pathlib import Path

import numpy as np

from fairseq_xl.data.dictionary import XLDictionary
from fairseq_xl.data.indexed import open_text
from fairseq_xl.data.shards import one_folder
from fairseq_xl.data.vectors import Vectors, write
from fairseq_xl.embeddings.mapping import normalize
from fairseq_xl.embeddings.skipgram import Sentences, train
from fairseq_xl.errors import UserError

#: (option, type, default, lowest value, help)
NUMBERS = (
    ("dim", int, 768, 1, "channels"),
    ("epochs", int, 5, 1, "passes over the text"),
    ("negative", int, 10, 1, "negative samples for each word"),
    ("subsample", float, 1e-5, 0, "sub-sampling threshold: more frequent pieces are dropped at random"),
    ("buckets", int, 2000000, 1, "hash buckets of character n-grams; n-grams in one bucket share a vector"),
    ("min-count", int, 0, 0, "minimum occurrences of a piece in the text; 0 keeps all pieces of the dictionary"),
    ("threads", int, 1, 1, "threads; with more than one, results differ between runs"),
    ("seed", int, 1, 0, "random seed"),
)


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser("fairseq-xl skipgram", description=__doc__)
    parser.add_argument("data", type=Path, help="folder that `python -m preprocess` wrote")
    parser.add_argument("language", help="language of the training text that is read")
    parser.add_argument("output", help="file to write")
    for name, kind, default, _, described in NUMBERS:
        parser.add_argument(f"--{name}", type=kind, default=default, help=f"{described} (default: {default})")
    options = parser.parse_args(arguments)
    for name, _, _, least, _ in NUMBERS:
        number = getattr(options, name.replace("-", "_"))
        if number < least:
            raise UserError(f"--{name} {number}: {least} or more is needed")
    options.data = one_folder(options.data)
    dictionary = XLDictionary.load(options.data / "dict.txt")
    dictionary.language_id(options.language)
    text = open_text(options.data / options.language / "train", options.language, len(dictionary))
    pieces = dictionary.pieces[np.argsort(-dictionary.counts[dictionary.pieces], kind="stable")]
    symbols = [dictionary.symbols[index] for index in pieces]
    symbols, rows = train(Sentences(text, dictionary), symbols, options)
    write(Vectors(symbols, normalize(rows)), options.output)
