"""Pairs of adjacent segments of monolingual documents (Luo et al. 2020, section 3)."""

import logging
from functools import cached_property, lru_cache

import numpy as np

from fairseq_xl.data.indexed import open_text
from fairseq_xl.data.monolingual import TokenStream
from fairseq_xl.data.negatives import TRIES, reach_among
from fairseq_xl.data.randomness import NEGATIVE_SEGMENT, uniforms
from fairseq_xl.data.sampling import draw_passes
from fairseq_xl.errors import UserError

logger = logging.getLogger(__name__)


class Windows:
    """Base of corpora whose examples are numbered from 0 and listed, with their sizes, by `all_examples`."""

    def mean_size(self, length):
        """Mean number of tokens of an example, all its texts together."""
        return self.all_examples(length)[1].mean()

    def sample(self, rng, count, length):
        """Random examples, without replacement within a pass: examples (count,), sizes (count,)."""
        _, sizes = self.all_examples(length)
        examples = draw_passes(rng, len(sizes), count)
        return examples, sizes[examples]


class OneLanguageWindows(Windows):
    """Base of corpora that divide the text of one language into windows.

    Args:
        path: prefix of the ``.bin`` and ``.idx`` files.
        language: code of the language.
        symbols: size of the dictionary that token ids are checked against; None: no check.
    """

    def __init__(self, path, language, symbols=None):
        self.stream = TokenStream(path, language, symbols)
        self.path, self.language, self.sentences = self.stream.path, language, self.stream.sentences

    def __reduce__(self):
        return type(self), (self.path, self.language, self.stream.symbols)


class AdjacentSegments(OneLanguageWindows):
    """Pairs of adjacent segments of one document.

    A document, which ends at an empty line, is divided into windows of whole sentences of up to twice `length` tokens
    (two sentences may be longer). A window is cut at the end of the sentence that is nearest to its middle. Tokens by
    which a segment is longer than `length` are removed at the start or the end of the window, so that the segments stay
    adjacent. Windows of a single sentence are left out.
    """

    def __init__(self, path, language, symbols=None):
        super().__init__(path, language, symbols)
        self.windows, self._by_size = lru_cache(maxsize=4)(self._windows), lru_cache(maxsize=4)(self._sorted)

    def _windows(self, length):
        """Token indices where first segments begin, second segments begin, and second segments end: (n, 3)."""
        items = open_text(self.path, self.language)  # a variable: its sizes are unmapped when it is freed
        starts = np.concatenate(([0], np.cumsum(items.sizes, dtype=np.int64)))  # of sentences; end
        reach = np.searchsorted(starts, starts[:-1] + 2 * length, side="right") - 1
        blank = np.flatnonzero(np.diff(starts) == 1)
        if not len(blank):
            logger.warning("%s: no empty line, so the whole text is one document", self.path)
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
            logger.info(
                "%s: %d of %d windows are single sentences and are left out",
                self.path,
                (~several).sum(),
                len(several),
            )
        firsts, lasts = firsts[several], lasts[several]
        middles = (starts[firsts] + starts[lasts]) / 2
        after = np.searchsorted(starts, middles)
        nearest = np.where(starts[after] - middles < middles - starts[after - 1], after, after - 1)
        return np.stack((starts[firsts], starts[np.clip(nearest, firsts + 1, lasts - 1)], starts[lasts]), axis=1)

    def texts(self, examples, length):
        """The two segments of each example, of at most `length` tokens each: a list of pairs of arrays."""
        read = self.stream.read
        return [
            (read(max(begin, cut - length), cut), read(cut, min(end, cut + length)))
            for begin, cut, end in self.windows(length)[examples].tolist()
        ]

    def languages(self, examples, length):
        """The language of both segments of each example: a list of pairs."""
        return [(self.language, self.language)] * len(examples)

    def all_examples(self, length):
        """All pairs in order: examples (n,), sizes of both segments together (n,)."""
        windows = self.windows(length)
        return np.arange(len(windows)), np.minimum(np.diff(windows), length).sum(1)

    # --- negatives: segments of other documents ----------------------------------------------------------------

    @cached_property
    def _ends(self):
        """Token indices where documents end: those of empty lines."""
        items = open_text(self.path, self.language)  # a variable: its sizes are unmapped when it is freed
        sizes = np.asarray(items.sizes)
        return np.cumsum(sizes, dtype=np.int64)[sizes == 1]

    def _sorted(self, length):
        """Windows sorted by the size of the second segment: (order, rank of each window, sizes, documents), (n,) each.

        Windows of the same size, frequent in long documents, are shuffled: neighbors in the text are often of the same
        document.
        """
        begins, cuts, ends = self.windows(length).T
        sizes = np.minimum(ends - cuts, length)
        order = np.lexsort((np.random.default_rng(0).permutation(len(sizes)), sizes))
        documents = np.searchsorted(self._ends, begins, side="right")
        if documents[0] == documents[-1]:
            raise UserError(
                f"{self.path}: negatives need a second document of two or more sentences, and the text of language "
                f"{self.language!r} has only one; documents are separated by empty lines"
            )
        return order, np.argsort(order), sizes, documents

    def _most(self, examples, length):
        """Highest rank that a negative of each example is sampled from, and the size there, the largest possible."""
        order, places, sizes, _ = self._by_size(length)
        last = np.minimum(places[examples] + reach_among(len(order)), len(order) - 1)
        return last, sizes[order[last]]

    def sizes_with_negatives(self, examples, length):
        """Tokens (n,) of each example with the longest negative that it may get."""
        begins, cuts, _ = self.windows(length)[examples].T
        return np.minimum(cuts - begins, length) + self._most(examples, length)[1]

    def negatives(self, examples, length, keys):
        """Samples for each example (B,) a second segment of similar length from another document: a list of arrays.

        The choice is a function of the example and its key, (B,) uint64.
        """
        order, places, _, documents = self._by_size(length)
        last, most = self._most(examples, length)
        first = np.maximum(places[examples] - reach_among(len(order)), 0)
        numbers = uniforms(keys, TRIES, NEGATIVE_SEGMENT)
        drawn = order[first[:, None] + (numbers * (last - first + 1)[:, None]).astype(np.int64)]  # (B, TRIES)
        elsewhere = documents[drawn] != documents[examples][:, None]
        chosen = drawn[np.arange(len(drawn)), elsewhere.argmax(axis=1)]
        for row in np.flatnonzero(~elsewhere.any(axis=1)):  # the document is most of the text
            others = np.flatnonzero(documents != documents[examples[row]])
            chosen[row] = others[int(numbers[row, 0] * len(others))]
        return [second[:size] for (_, second), size in zip(self.texts(chosen, length), most.tolist())]
