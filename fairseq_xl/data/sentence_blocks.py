"""Monolingual text in blocks of whole sentences."""

from functools import lru_cache

import numpy as np

from fairseq_xl.data.documents import Windows
from fairseq_xl.data.indexed import open_text
from fairseq_xl.data.monolingual import TokenStream


class SentenceBlocks(Windows):
    """Blocks of as many consecutive sentences as fit into `length` tokens: fairseq's ``--sample-break-mode complete``.

    Unlike fairseq's, blocks never exceed `length`: a longer sentence is split into parts of `length` tokens, and what
    is left begins the next block. Blocks may contain several documents and are the same in every pass.

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
        # a sentence longer than `length` is split after every `length` tokens
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
