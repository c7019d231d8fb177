"""Monolingual documents as pairs of adjacent segments (VECO, V3)."""

import logging
from functools import cached_property, lru_cache

import numpy as np

from fairseq_xl.data.indexed import open_text
from fairseq_xl.data.monolingual import TokenStream
from fairseq_xl.data.randomness import uniforms
from fairseq_xl.data.sampling import draw_passes
from fairseq_xl.errors import UserError

logger = logging.getLogger(__name__)

REACH = 500  # windows on either side, in the order of their second segments' sizes, that a negative is drawn from
LEAST_REACH, SHARE = 10, 20  # of a short text a twentieth, but no fewer windows than this
TRIES = 8  # random windows among which the first of another document is looked for

_CHOICE = 8  # purpose of the random numbers that choose a negative


class AdjacentSegments:
    """Pairs of adjacent segments of one document: windows of whole sentences, each cut in two.

    A window has up to twice as many tokens as a segment; windows follow each other through a document and never reach
    over its end, an empty line. The cut is at the sentence's end that is nearest to the middle of the window; what is
    too long for a segment then is left off at the window's ends, so that the segments stay adjacent. A window of a
    single sentence is no pair; one of two may be longer.

    Args:
        path: prefix of the ``.bin`` and ``.idx`` files.
        language: code of its language.
        symbols: size of the dictionary, which token ids are checked against; None: no check.
    """

    def __init__(self, path, language, symbols=None):
        self.stream = TokenStream(path, language, symbols)
        self.path, self.language, self.sentences = self.stream.path, language, self.stream.sentences
        self.windows, self._by_size = lru_cache(maxsize=4)(self._windows), lru_cache(maxsize=4)(self._sorted)

    def __reduce__(self):
        return AdjacentSegments, (self.path, self.language, self.stream.symbols)

    def _windows(self, longest):
        """Where first segments begin and second ones begin and end, (n, 3)."""
        items = open_text(self.path, self.language)  # named: its sizes are unmapped when it goes
        starts = np.concatenate(([0], np.cumsum(items.sizes, dtype=np.int64)))  # of sentences, and the end of the last
        reach = np.searchsorted(starts, starts[:-1] + 2 * longest, side="right") - 1
        blank = np.flatnonzero(np.diff(starts) == 1)
        if not len(blank):
            logger.warning("%s: no empty line, so that all of it is one document", self.path)
        firsts, lasts = [], []
        for first, last in zip([0, *(blank + 1).tolist()], [*blank.tolist(), len(items)]):
            while first < last:
                firsts.append(first)
                first = min(max(int(reach[first]), first + 2), last)
                lasts.append(first)
        firsts, lasts = np.array(firsts, dtype=np.int64), np.array(lasts, dtype=np.int64)
        several = lasts - firsts > 1
        if not several.any():
            raise UserError(
                f"{self.path}: no document of language {self.language!r} has two sentences; documents are separated by "
                "empty lines"
            )
        if not several.all():
            logger.info("%s: %d of %d windows are one sentence and left out", self.path, (~several).sum(), len(several))
        firsts, lasts = firsts[several], lasts[several]
        middles = (starts[firsts] + starts[lasts]) / 2
        after = np.searchsorted(starts, middles)
        nearest = np.where(starts[after] - middles < middles - starts[after - 1], after, after - 1)
        return np.stack((starts[firsts], starts[np.clip(nearest, firsts + 1, lasts - 1)], starts[lasts]), axis=1)

    def texts(self, examples, longest):
        """The two segments of each of `examples`, of at most `longest` tokens: a list of pairs of arrays."""
        read = self.stream.read
        return [
            (read(max(begin, cut - longest), cut), read(cut, min(end, cut + longest)))
            for begin, cut, end in self.windows(longest)[examples].tolist()
        ]

    def languages(self, examples, longest):
        """The language of the two segments of each of `examples`: a list of pairs."""
        return [(self.language, self.language)] * len(examples)

    def every(self, longest):
        """All pairs in order: examples (n,), sizes of both segments together (n,)."""
        windows = self.windows(longest)
        return np.arange(len(windows)), np.minimum(np.diff(windows), longest).sum(1)

    def mean_size(self, longest):
        """Mean number of tokens of a pair, both segments together."""
        return self.every(longest)[1].mean()

    def draw(self, rng, count, longest):
        """`count` pairs at random, each at most once in a pass: examples (count,), sizes (count,)."""
        every, sizes = self.every(longest)
        examples = draw_passes(rng, len(every), count)
        return examples, sizes[examples]

    # --- segments that don't follow (M1) -----------------------------------------------------------------------

    @cached_property
    def _ends(self):
        """Where documents end: the places of empty lines."""
        items = open_text(self.path, self.language)  # named: its sizes are unmapped when it goes
        sizes = np.asarray(items.sizes)
        return np.cumsum(sizes, dtype=np.int64)[sizes == 1]

    def _sorted(self, longest):
        """Windows in the order of their second segments' sizes, each one's place there, these sizes, the documents.

        Windows of the same size, as most are in long documents, are in an order of their own: neighbours in the text
        would be of one document.
        """
        begins, cuts, ends = self.windows(longest).T
        sizes = np.minimum(ends - cuts, longest)
        order = np.lexsort((np.random.default_rng(0).permutation(len(sizes)), sizes))
        documents = np.searchsorted(self._ends, begins, side="right")
        if documents[0] == documents[-1]:
            raise UserError(
                f"{self.path}: a segment that doesn't follow needs another document, and the text of language "
                f"{self.language!r} has one of two sentences only; documents are separated by empty lines"
            )
        return order, np.argsort(order), sizes, documents

    def _most(self, examples, longest):
        """Last place that a negative of each of `examples` is drawn from, and the size there, which none exceeds."""
        order, places, sizes, _ = self._by_size(longest)
        last = np.minimum(places[examples] + _reach(len(order)), len(order) - 1)
        return last, sizes[order[last]]

    def sizes_with_negatives(self, examples, longest):
        """Tokens (n,) of each of `examples` with the longest second segment that it may get."""
        begins, cuts, _ = self.windows(longest)[examples].T
        return np.minimum(cuts - begins, longest) + self._most(examples, longest)[1]

    def negatives(self, examples, longest, keys):
        """For each of `examples` a second segment of another document that is about as long: a list of arrays.

        Examples and keys are (B,), the keys uint64.
        """
        order, places, _, documents = self._by_size(longest)
        last, most = self._most(examples, longest)
        first = np.maximum(places[examples] - _reach(len(order)), 0)
        numbers = uniforms(keys, TRIES, _CHOICE)
        drawn = order[first[:, None] + (numbers * (last - first + 1)[:, None]).astype(np.int64)]  # (B, TRIES)
        elsewhere = documents[drawn] != documents[examples][:, None]
        chosen = drawn[np.arange(len(drawn)), elsewhere.argmax(axis=1)]
        for row in np.flatnonzero(~elsewhere.any(axis=1)):  # a document that is most of the text
            others = np.flatnonzero(documents != documents[examples[row]])
            chosen[row] = others[int(numbers[row, 0] * len(others))]
        return [second[:size] for (_, second), size in zip(self.texts(chosen, longest), most.tolist())]


def _reach(windows):
    """How many of so many windows, on either side, a negative is drawn from: few enough that length tells nothing."""
    return min(REACH, max(LEAST_REACH, windows // SHARE))
