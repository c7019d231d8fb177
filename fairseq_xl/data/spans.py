"""Monolingual text as spans of its token stream."""

from functools import lru_cache
from pathlib import Path

import numpy as np

from fairseq_xl.data.corpus import Numbers
from fairseq_xl.data.documents import OneLanguageWindows


class Spans(OneLanguageWindows):
    """Base of corpora whose examples are spans of the stream; `_spans` finds them."""

    def __init__(self, path: str | Path, language: str, symbols: int | None = None):
        super().__init__(path, language, symbols)
        self.spans = lru_cache(maxsize=4)(self._spans)

    def _spans(self, length: int) -> Numbers:
        """Token indices where spans of up to `length` tokens begin and end, (n, 2)."""
        raise NotImplementedError(f"{type(self).__name__}._spans")

    def texts(self, examples: Numbers, length: int) -> list[tuple[Numbers, ...]]:
        """The spans of these numbers, of up to `length` tokens: a list of 1-tuples of arrays (t,)."""
        return [(self.stream.read(begin, end),) for begin, end in self.spans(length)[examples].tolist()]

    def languages(self, examples: Numbers, length: int) -> list[tuple[str, ...]]:
        """The language of each span, a list of 1-tuples."""
        return [(self.language,)] * len(examples)

    def all_examples(self, length: int) -> tuple[Numbers, Numbers]:
        """All spans in order: examples (n,) and sizes (n,)."""
        sizes = np.diff(self.spans(length))[:, 0]
        return np.arange(len(sizes)), sizes
