"""fastText's skip-gram embeddings of the pieces of a language (MonoTrans, M8), trained by gensim.

The command is `fairseq-xl skipgram`, which reads the training text of a language in a folder of `python -m preprocess`,
a sentence a line. Every piece of the dictionary gets a vector, one that never occurs the sum of those of its characters'
n-grams. Rows are normalized as VecMap does: length 1, mean taken away, length 1.
"""

import logging

import numpy as np

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
