"""fastText's skip-gram embeddings of the pieces of a language (MonoTrans, M8), trained by gensim.

    python -m fairseq_xl.embeddings.skipgram DATA LANGUAGE OUTPUT.npz [--dim 768] …

DATA is a folder of `python -m preprocess`: its training text of the language is read, a sentence a line. Every piece of
the dictionary gets a vector, one that never occurs the sum of those of its characters' n-grams. Rows are normalised as
VecMap does: length 1, mean taken away, length 1.
"""

import argparse
import logging
import sys
from pathlib import Path

import numpy as np

from fairseq_xl import error_reporting, register
from fairseq_xl.data.dictionary import XLDictionary
from fairseq_xl.data.indexed import open_text
from fairseq_xl.embeddings.mapping import normalise
from fairseq_xl.embeddings.vectors import Vectors, write
from fairseq_xl.errors import UserError


class Sentences:
    """Binarised text as lists of pieces, to be read as often as wanted; special symbols are left out."""

    def __init__(self, text, dictionary):
        self.text, self.dictionary = text, dictionary

    def __iter__(self):
        symbols, is_piece = self.dictionary.symbols, self.dictionary.is_piece
        for number in range(len(self.text)):
            pieces = [symbols[index] for index in self.text[number].tolist() if is_piece[index]]
            if pieces:
                yield pieces


def train(sentences, symbols, options):
    """Embeddings (V, C) of `symbols`, trained on an iterable of lists of them; `UserError` without gensim."""
    try:
        from gensim.models import FastText
    except ImportError:
        raise UserError("skip-gram embeddings need the package gensim: XL_EXTRAS=recipes,embeddings") from None
    logging.getLogger("gensim").setLevel(logging.WARNING)  # fairseq leaves the root logger at DEBUG
    model = FastText(
        vector_size=options.dim, sg=1, negative=options.negative, sample=options.subsample, min_count=1,
        bucket=options.buckets, seed=options.seed, workers=options.threads,
    )  # fmt: skip
    model.build_vocab(sentences)
    model.train(sentences, total_examples=model.corpus_count, epochs=options.epochs)
    return np.stack([model.wv[symbol] for symbol in symbols])


def main(arguments: "list[str] | None" = None) -> None:
    """The command; ``--help`` lists what it takes."""
    parser = argparse.ArgumentParser("python -m fairseq_xl.embeddings.skipgram", description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path, help="folder that `python -m preprocess` wrote")
    parser.add_argument("language", help="whose training text is read")
    parser.add_argument("output", help="file to write")
    numbers = (
        ("dim", int, 768, 1, "channels"),
        ("epochs", int, 5, 1, "passes over the text"),
        ("negative", int, 10, 1, "noise words for each"),
        ("subsample", float, 1e-5, 0, "frequency from which on pieces are left out at random"),
        ("buckets", int, 2000000, 1, "n-grams share so many vectors"),
        ("threads", int, 1, 1, "with more than one, no two runs are alike"),
        ("seed", int, 1, 0, "of the first weights and all draws"),
    )
    for name, kind, default, _, told in numbers:
        parser.add_argument(f"--{name}", type=kind, default=default, help=f"{told} (default: {default})")
    options = parser.parse_args(arguments)
    register()
    for name, _, _, least, _ in numbers:
        if getattr(options, name) < least:
            raise UserError(f"--{name} {getattr(options, name)}: {least} or more is needed")
    dictionary = XLDictionary.load(options.data / "dict.txt")
    dictionary.language_id(options.language)
    text = open_text(options.data / options.language / "train", options.language, len(dictionary))
    pieces = dictionary.pieces[np.argsort(-dictionary.counts[dictionary.pieces], kind="stable")]
    symbols = [dictionary.symbols[index] for index in pieces]
    write(Vectors(symbols, normalise(train(Sentences(text, dictionary), symbols, options))), options.output)


if __name__ == "__main__":
    error_reporting.install()
    logging.basicConfig(format="%(levelname)s | %(name)s | %(message)s", level=logging.INFO, stream=sys.stderr)
    main()
