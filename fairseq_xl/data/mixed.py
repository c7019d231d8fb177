"""Batches of several languages or pairs."""

import numpy as np

from fairseq_xl.data.sampling import smoothed_shares

_PLACES = 2**48  # examples of a source; more than any text has tokens


class MixedSource:
    """Several sources as one, where every example is drawn on its own: a batch mixes languages (U2, G1).

    An example is a number, its source's place in the order times 2^48 and what the source calls the example.

    Args:
        sources: {name: source}, all of one kind.
        alpha: exponent of their shares; 0 draws uniformly (U2).
    """

    def __init__(self, sources, alpha):
        self.sources = list(sources.values())
        self.shares = smoothed_shares([source.sentences for source in self.sources], alpha)
        self.sentences = sum(source.sentences for source in self.sources)

    def mean_size(self, length):
        """Mean number of tokens of an example."""
        return sum(share * source.mean_size(length) for share, source in zip(self.shares, self.sources))

    def draw(self, rng, count, length):
        """`count` examples at random, from each source at most once in a pass: examples (count,), sizes (count,)."""
        numbers = rng.choice(len(self.sources), count, p=self.shares)
        examples, sizes = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
        for number, source in enumerate(self.sources):
            chosen = numbers == number
            if chosen.any():
                drawn, sizes[chosen] = source.draw(rng, int(chosen.sum()), length)
                examples[chosen] = number * _PLACES + drawn
        return examples, sizes

    def texts(self, examples, longest):
        """The texts of each example, as its source has them."""
        return [source.texts(place, longest)[0] for source, place in self._found(examples)]

    def languages(self, examples, longest):
        """The languages of each example's texts."""
        return [source.languages(place, longest)[0] for source, place in self._found(examples)]

    def negatives(self, examples, longest, keys, *kind):
        """A negative of each example, from its own source."""
        found = [None] * len(examples)
        for source, rows, places in self._by_source(examples):
            for row, negative in zip(rows, source.negatives(places, longest, keys[rows], *kind)):
                found[row] = negative
        return found

    def sizes_with_negatives(self, examples, longest, *kind):
        """Sizes (n,) of the examples, as their sources have them."""
        sizes = np.empty(len(examples), dtype=np.int64)
        for source, rows, places in self._by_source(examples):
            sizes[rows] = source.sizes_with_negatives(places, longest, *kind)
        return sizes

    def _by_source(self, examples):
        """Each source that some of the examples are of: the source, their rows, and what it calls them."""
        numbers, places = np.divmod(examples, _PLACES)
        for number in np.unique(numbers):
            rows = np.flatnonzero(numbers == number)
            yield self.sources[number], rows, places[rows]

    def _found(self, examples):
        numbers, places = np.divmod(examples, _PLACES)
        return [(self.sources[number], places[i : i + 1]) for i, number in enumerate(numbers.tolist())]
