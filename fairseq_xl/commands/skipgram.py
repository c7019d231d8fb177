"""Trains fastText's skip-gram embeddings of the pieces of a language with gensim (Artetxe et al. 2020, section 3.1)."""

import argparse
from pathlib import Path

import numpy as np

from fairseq_xl.checkpoints.embedding_files import Vectors, space_of, write
from fairseq_xl.data.store.binarized_text import open_text
from fairseq_xl.data.store.shards import one_folder
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.embeddings.mapping import normalize
from fairseq_xl.embeddings.skipgram_training import Sentences, train
from fairseq_xl.errors import in_range
from fairseq_xl.io import bounds

#: (option, type, default, range, exclusive upper bound, help)
NUMBERS = (
    ("dim", int, 768, "1 or more", bounds.MOST_CHANNELS, "channels"),
    ("epochs", int, 5, "1 or more", bounds.LARGEST_BEAM, "passes over the text"),
    ("negative", int, 10, "1 or more", bounds.LARGEST_BEAM, "negative samples for each word"),
    ("subsample", float, 1e-5, "0 or more", bounds.LARGEST, "threshold: more frequent pieces are dropped at random"),
    ("buckets", int, 2000000, "1 or more", bounds.MOST_BUCKETS, "hash buckets of n-grams; those in one share a vector"),
    ("min-count", int, 0, "0 or more", bounds.LARGEST, "minimum occurrences of a piece; 0 keeps all of the dictionary"),
    ("threads", int, 1, "1 or more", bounds.MOST_PROCESSES, "threads; with several, results differ between runs"),
    ("seed", int, 1, "0 or more", bounds.LARGEST, "random seed"),
)


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser("fairseq-xl skipgram", description=__doc__)
    parser.add_argument("data", type=Path, help="folder that `python -m preprocess` wrote")
    parser.add_argument("language", help="language of the training text that is read")
    parser.add_argument("output", help="file to write")
    for name, kind, default, expected, below, help_text in NUMBERS:
        action = in_range(kind, expected, below)
        parser.add_argument(f"--{name}", action=action, default=default, help=f"{help_text} (default: {default})")
    options = parser.parse_args(arguments)
    options.data = one_folder(options.data)
    dictionary = XLDictionary.load(options.data / "dict.txt")
    dictionary.language_id(options.language)
    text = open_text(options.data / options.language / "train", options.language, len(dictionary))
    pieces = dictionary.pieces[np.argsort(-dictionary.counts[dictionary.pieces], kind="stable")]
    symbols = [dictionary.symbols[index] for index in pieces]
    symbols, rows = train(Sentences(text, dictionary), symbols, options)
    rows = normalize(rows)
    write(Vectors(symbols, rows, space_of(rows)), options.output)
