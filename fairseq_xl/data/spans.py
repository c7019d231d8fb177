"""Monolingual text as spans of its token stream."""

from functools import lru_cache

import numpy as np

from fairseq_xl.data.documents import OneLanguageWindows


class Spans(OneLanguageWindows):
    """Base of corpora whose examples are spans of the stream; `_spans` finds them."""

    def __init__(self, path, language, symbols=None):
        super().__init__(path, language, symbols)
        self.spans = lru_cache(maxsize=4)(self._spans)

    def _spans(self, length):
        """Token indices where spans of up to `length` tokens begin and end, (n, 2)."""
        raise NotImplementedError(f"{type(self).__name__}._spans")

    def texts(self, examples, length):
        """The spans of these numbers, of up to `length` tokens: a list of 1-tuples of arrays (t,)."""
        return [(self.stream.read(begin, end),) for begin, end in self.spans(length)[examples].tolist()]

    def languages(self, examples, length):
        """The language of each span, a list of 1-tuples."""
        return [(self.language,)] * len(examples)

    def all_examples(self, length):
        """All spans in order: examples (n,) and sizes (n,)."""
        sizes = np.diff(self.spans(length))[:, 0]
        return np.arange(len(sizes)), sizes
