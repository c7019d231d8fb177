"""Documents whose sentences alternate between two languages (Huang et al. 2019, section 3)."""

from functools import lru_cache

import numpy as np

from fairseq_xl.data.documents import Windows
from fairseq_xl.data.parallel import SentencePairs
from fairseq_xl.errors import UserError


class ParallelDocuments(Windows):
    """Windows of aligned documents in which every other sentence is replaced by its translation.

    A document ends where both sides have an empty line; lines that are empty on one side only are left out. A window is
    a run of lines of one document, of up to `length` tokens; if its last sentence is truncated, the rest is not used.
    Windows of a single sentence are left out. Each window gives two examples: sentences at even positions are in the
    first language in one of them and in the second language in the other one.

    Args:
        prefix: prefix of the four files, ``DATA/en-de/train.en-de``.
        first, second: codes of the two languages, suffixes of the files.
        symbols: size of the dictionary that token ids are checked against; None: no check.
    """

    def __init__(self, prefix, first, second, symbols=None):
        self.symbols, self.pairs = symbols, SentencePairs(prefix, first, second, symbols)
        self.prefix, self.codes, self.sentences = self.pairs.prefix, self.pairs.codes, self.pairs.sentences
        self.windows = lru_cache(maxsize=4)(self._windows)

    def __reduce__(self):
        return ParallelDocuments, (self.prefix, *self.codes, self.symbols)

    @property
    def name(self):
        """The name of the pair, ``en-de``."""
        return self.pairs.name

    @property
    def has_documents(self):
        """Whether any line is empty on both sides, which ends a document."""
        return bool((self.pairs.sizes <= 1).all(axis=1).any())

    def _windows(self, length):
        """Windows (n, 4): first and end in `pairs.filled`, language at odd positions (0 or 1), size in tokens."""
        sizes, filled = self.pairs.sizes, self.pairs.filled
        boundaries = np.flatnonzero((sizes <= 1).all(axis=1))
        breaks = (np.flatnonzero(np.diff(np.searchsorted(boundaries, filled))) + 1).tolist()
        sizes, found = sizes[filled].tolist(), []
        for first, end in zip([0, *breaks], [*breaks, len(filled)]):
            for base in (0, 1):
                found += _fill(sizes[first:end], first, base, length)
        if not found:
            raise UserError(
                f"{self.prefix}: no document has two sentences in both languages; documents are separated by empty "
                "lines on both sides"
            )
        return np.array(found, dtype=np.int64)

    def texts(self, examples, length):
        """The sentences of each example, of at most `length` tokens together: a list of tuples of arrays."""
        return [tuple(self._read(*window, length)) for window in self.windows(length)[examples, :3].tolist()]

    def languages(self, examples, length):
        """The languages of these sentences: a list of tuples."""
        windows = self.windows(length)[examples, :3].tolist()
        return [tuple(self.codes[_side(place, base)] for place in range(end - first)) for first, end, base in windows]

    def _read(self, first, end, base, room):
        for place, line in enumerate(self.pairs.filled[first:end]):
            sentence = self.pairs.sides[_side(place, base)][line].numpy()[:room]
            yield sentence
            room -= len(sentence)

    def all_examples(self, length):
        """All examples in order: examples (n,), sizes (n,)."""
        windows = self.windows(length)
        return np.arange(len(windows)), windows[:, 3]


def _side(place, base):
    """The side, 0 or 1, of the sentence at a position: `base` at odd positions, the other one at even positions."""
    return base if place % 2 else 1 - base


def _fill(sizes, first, base, length):
    """Windows, as in `_windows`, of a document with lines of sizes (n, 2), the first of which is number `first`."""
    windows, begin = [], 0
    while begin < len(sizes):
        end, total = begin, 0
        while end < len(sizes) and total < length:
            total += sizes[end][_side(end - begin, base)]
            end += 1
        if end - begin > 1:
            windows.append((first + begin, first + end, base, min(total, length)))
        begin = end
    return windows
