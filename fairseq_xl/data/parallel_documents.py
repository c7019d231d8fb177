"""Documents of bitext whose sentences come from both languages in turn (Unicoder, U6)."""

from functools import lru_cache

import numpy as np

from fairseq_xl.data.parallel import SentencePairs
from fairseq_xl.data.sampling import draw_passes
from fairseq_xl.errors import UserError


class ParallelDocuments:
    """Windows of aligned documents in which every other sentence is replaced by its translation.

    A document ends where both sides have an empty line; lines that only one side has are left out. A window is a run of
    lines of one document that goes on until it is full; its last sentence may be cut, and the rest of that is in no
    window. Windows of a single sentence are left out. Each window is two examples: the sentences at even places are
    those of one language or of the other.

    Args:
        prefix: prefix of the four files, ``DATA/en-de/train.en-de``.
        source, target: codes of the two languages, suffixes of the files.
        symbols: size of the dictionary, which token ids are checked against; None: no check.
    """

    def __init__(self, prefix, source, target, symbols=None):
        self.symbols, self.pairs = symbols, SentencePairs(prefix, source, target, symbols)
        self.prefix, self.codes, self.sentences = self.pairs.prefix, (source, target), self.pairs.sentences
        self.windows = lru_cache(maxsize=4)(self._windows)

    def __reduce__(self):
        return ParallelDocuments, (self.prefix, *self.codes, self.symbols)

    @property
    def has_documents(self):
        """Whether any line is empty on both sides, as between documents."""
        return bool((self.pairs.sizes <= 1).all(axis=1).any())

    def _windows(self, longest):
        """Which of `pairs.filled` a window begins and ends with, its language at odd places, and its size: (n, 4)."""
        sizes, filled = self.pairs.sizes, self.pairs.filled
        boundaries = np.flatnonzero((sizes <= 1).all(axis=1))
        breaks = (np.flatnonzero(np.diff(np.searchsorted(boundaries, filled))) + 1).tolist()
        sizes, found = sizes[filled].tolist(), []
        for first, end in zip([0, *breaks], [*breaks, len(filled)]):
            for base in (0, 1):
                found += _fill(sizes[first:end], first, base, longest)
        if not found:
            raise UserError(
                f"{self.prefix}: no document has two sentences in both languages; documents are separated by empty "
                "lines on both sides"
            )
        return np.array(found, dtype=np.int64)

    def texts(self, examples, longest):
        """The sentences of each of `examples`, of at most `longest` tokens together: a list of tuples of arrays."""
        return [tuple(self._read(*window, longest)) for window in self.windows(longest)[examples, :3].tolist()]

    def languages(self, examples, longest):
        """The languages of these sentences: a list of tuples."""
        windows = self.windows(longest)[examples, :3].tolist()
        return [tuple(self.codes[_side(place, base)] for place in range(end - first)) for first, end, base in windows]

    def _read(self, first, end, base, room):
        for place, line in enumerate(self.pairs.filled[first:end]):
            sentence = self.pairs.sides[_side(place, base)][line].numpy()[:room]
            yield sentence
            room -= len(sentence)

    def every(self, longest):
        """All examples in order: examples (n,), sizes (n,)."""
        windows = self.windows(longest)
        return np.arange(len(windows)), windows[:, 3]

    def mean_size(self, longest):
        """Mean number of tokens of a window."""
        return self.every(longest)[1].mean()

    def draw(self, rng, count, longest):
        """`count` windows at random, each at most once in a pass: examples (count,), sizes (count,)."""
        every, sizes = self.every(longest)
        examples = draw_passes(rng, len(every), count)
        return examples, sizes[examples]


def _side(place, base):
    """The side of the sentence at a place: at even places the translation, of the other side than `base`."""
    return base if place % 2 else 1 - base


def _fill(sizes, first, base, longest):
    """Sizes (n, 2) of a document's lines, of which the first is number `first` -> its windows, as in `_windows`."""
    windows, begin = [], 0
    while begin < len(sizes):
        end, total = begin, 0
        while end < len(sizes) and total < longest:
            total += sizes[end][_side(end - begin, base)]
            end += 1
        if end - begin > 1:
            windows.append((first + begin, first + end, base, min(total, longest)))
        begin = end
    return windows
