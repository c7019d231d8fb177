"""Monolingual text in blocks of whole sentences."""

from functools import lru_cache

import numpy as np

from fairseq_xl.data.documents import Windows
from fairseq_xl.data.indexed import open_text
from fairseq_xl.data.monolingual import TokenStream


class SentenceBlocks(Windows):
    """Blocks of whole sentences of up to `length` tokens, as fairseq's ``--sample-break-mode complete`` makes them.

    The text is the stream of `TokenStream`, cut in order: a block takes as many sentences as fit. Of a sentence longer
    than `length` it takes `length` tokens, and the next block continues there. Blocks are the same in every pass.

    Args:
        path: prefix of the ``.bin`` and ``.idx`` files.
        language: code of the language.
        symbols: size of the dictionary that token ids are checked against; None: no check.
    """

    def __init__(self, path, language, symbols=None):
        self.stream = TokenStream(path, language, symbols)
        self.path, self.language, self.sentences = self.stream.path, language, self.stream.sentences
        self.boundaries = lru_cache(maxsize=4)(self._boundaries)

    def __reduce__(self):
        return SentenceBlocks, (self.path, self.language, self.stream.symbols)

    def _boundaries(self, length):
        """Token indices where the n blocks begin and the last one ends, (n+1,)."""
        items = open_text(self.path, self.language)  # a variable: its sizes are unmapped when it is freed
        ends = np.cumsum(items.sizes, dtype=np.int64)  # of sentences
        # a sentence longer than `length` also ends a block after every `length` tokens
        long = np.flatnonzero(np.diff(ends, prepend=0) > length)
        cuts = [np.arange(ends[line] - items.sizes[line] + length, ends[line], length) for line in long]
        ends = np.unique(np.concatenate((ends, *cuts)))
        starts = np.concatenate(([0], ends[:-1]))
        following = np.searchsorted(ends, starts + length, side="right").tolist()  # first of the next block
        firsts, first = [], 0
        while first < len(ends):
            firsts.append(first)
            first = following[first]
        return np.append(starts[firsts], ends[-1])

    def texts(self, examples, length):
        """The blocks of these numbers, of up to `length` tokens: a list of 1-tuples of arrays (t,)."""
        boundaries = self.boundaries(length)
        return [(self.stream.read(boundaries[block], boundaries[block + 1]),) for block in examples.tolist()]

    def languages(self, examples, length):
        """The language of each block, a list of 1-tuples."""
        return [(self.language,)] * len(examples)

    def all_examples(self, length):
        """All blocks in order: examples (n,) and sizes (n,)."""
        sizes = np.diff(self.boundaries(length))
        return np.arange(len(sizes)), sizes
