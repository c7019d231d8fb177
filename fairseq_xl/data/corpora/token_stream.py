"""Monolingual text as one stream of tokens."""

from pathlib import Path

import numpy as np

from fairseq_xl.data import Numbers
from fairseq_xl.data.corpora.base import Corpus
from fairseq_xl.data.corpora.line_corpus import LineCorpus
from fairseq_xl.data.corpora.sampling import draw_passes
from fairseq_xl.data.store.binarized_text import open_text
from fairseq_xl.io.arrays import Reopened


@Corpus.register
class TokenStream(Reopened, Corpus):
    """The binarized text of one language as a stream of sentences, each of which ends in ``</s>``.

    An example is a block of the stream; its number is the index of its first token. An empty line (a document boundary)
    is an item that holds only ``</s>``: the extra separator that RoBERTa puts between documents. The file is
    memory-mapped and opened again in every worker. Arguments are those of `open_text`.
    """

    break_mode = "none"

    def __init__(self, path: str | Path, language: str, symbols: int | None = None):
        self.language, self.symbols, self.codes = language, symbols, (language,)
        self.text = open_text(path, language, symbols)
        self.path = self.text.prefix
        self.tokens = self.text.tokens  # the whole stream, (size,), memory-mapped
        self.size = len(self.tokens)
        none = f"{path}: the text of language {language!r} has no sentence"
        self.sentences = LineCorpus(self.path, [self.text], none).sentences

    def texts(self, starts: Numbers, length: int) -> list[tuple[Numbers, ...]]:
        """The blocks of up to `length` tokens that begin at `starts`: a list of 1-tuples of arrays (t,)."""
        return [(self.text.read(start, start + length),) for start in starts]

    def examples_at(self, positions: Numbers, length: int) -> tuple[Numbers, Numbers]:
        """Blocks at positions (n,): starts (n,) and sizes (n,)."""
        return length * positions, np.minimum(length, self.size - length * positions)

    def number_of_examples(self, length: int) -> int:
        return -(-self.size // length)

    def positions(self, starts: Numbers, length: int) -> Numbers:
        """Positions (n,) of blocks among all: starts (n,) that are multiples of `length`, divided by it."""
        return starts // length

    def mean_size(self, length: int) -> float:
        return self.size / self.number_of_examples(length)

    def sample(self, rng: np.random.Generator, count: int, length: int) -> tuple[Numbers, Numbers]:
        """Random blocks, without replacement within a pass over the text: starts (count,) and sizes (count,).

        Passes differ in where blocks begin.
        """
        passes = []
        while count > 0:
            shift = int(rng.integers(min(length, max(1, self.size - length))))
            available = -(-(self.size - shift) // length)
            passes.append(shift + length * draw_passes(rng, available, min(count, available)))
            count -= available
        starts = np.concatenate(passes)
        return starts, np.minimum(length, self.size - starts)


def piece_counts(path: str | Path, language: str, symbols: int, tokens: int | None = None) -> Numbers:
    """Number of occurrences of each of V symbols in the first `tokens` (None: all) of a language's text: (V,)."""
    return TokenStream(path, language, symbols).text.counts(tokens)
