"""fastText's skip-gram embeddings of the pieces of one language (Artetxe et al. 2020, section 3.1), trained by gensim.

The command is `fairseq-xl embeddings skipgram`, which reads the training text of a language in a data folder, one
sentence per line. Every piece of the dictionary gets an embedding; that of a piece without occurrences is the sum of
its characters' n-grams. With `--min-count N` only pieces with N occurrences or more get one. Rows are normalized as in
VecMap.
"""

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fairseq_xl.data.store.binarized_text import Text
from fairseq_xl.errors import UserError

if TYPE_CHECKING:
    from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary


class Sentences:
    """Iterable of a binarized text's sentences as lists of pieces, without special symbols."""

    def __init__(self, text: Text, dictionary: "XLDictionary"):
        self.text, self.dictionary = text, dictionary

    def __iter__(self) -> Iterator[list[str]]:
        symbols, is_piece = self.dictionary.symbols, self.dictionary.is_piece
        for line in range(len(self.text)):
            pieces = [symbols[index] for index in self.text[line].tolist() if is_piece[index]]
            if pieces:
                yield pieces


def train(sentences: Iterable[list[str]], symbols: list[str], options: Any) -> tuple[list[str], np.ndarray]:
    """Trains embeddings of `symbols` on lists of symbols; returns V of them, (V, C). `UserError` without any."""
    try:
        from gensim.models import FastText
    except ImportError:
        needed = "need gensim: `XL_EXTRAS=recipes,embeddings . recipes/environment.sh`"
        raise UserError(f"skip-gram embeddings {needed}") from None
    logging.getLogger("gensim").setLevel(logging.WARNING)  # fairseq leaves the root logger at DEBUG
    model = FastText(
        vector_size=options.dim,
        sg=1,
        negative=options.negative,
        sample=options.subsample,
        min_count=max(1, options.min_count),
        bucket=options.buckets,
        seed=options.seed,
        workers=options.threads,
    )
    model.build_vocab(sentences)
    if options.min_count:
        symbols = [symbol for symbol in symbols if symbol in model.wv.key_to_index]
    if not symbols:
        raise UserError(f"--min-count {options.min_count}: no piece occurs so many times in the text")
    model.train(sentences, total_examples=model.corpus_count, epochs=options.epochs)
    return symbols, np.stack([model.wv[symbol] for symbol in symbols])
