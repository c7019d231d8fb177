"""Corpora whose batches mix languages or language pairs."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from fairseq_xl.data import Numbers
from fairseq_xl.data.corpora.base import Corpus
from fairseq_xl.data.corpora.sampling import smoothed_shares

MIXED = "mixed"  # name, in the log, of the corpus whose batches mix languages
_EXAMPLES_PER_CORPUS = 2**48  # more than any text has tokens


class MixedCorpus(Corpus):
    """Several corpora as one, in training: the language or pair of each example is sampled independently.

    A pass over the data reads its `parts`. The number of an example is the number of its corpus times 2^48 plus its
    number in that corpus.

    Args:
        corpora: {name: corpus}, all of the same type.
        alpha: exponent of the sampling shares; 0 samples all corpora equally often.
    """

    def __init__(self, corpora: dict[str, Any], alpha: float):
        self.parts, self.corpora = corpora, list(corpora.values())
        self.shares = smoothed_shares([corpus.sentences for corpus in self.corpora], alpha)
        self.sentences = sum(corpus.sentences for corpus in self.corpora)

    @staticmethod
    def numbered(corpus_index: int, examples: Numbers) -> Numbers:
        """The numbers of examples (n,) of the corpus with this index."""
        return corpus_index * _EXAMPLES_PER_CORPUS + examples

    def sides_of(self, examples: Numbers) -> Numbers:
        """Numbers of tokens of each text of examples (n,): (n, k)."""
        rows, sides = zip(*((rows, corpus.sides_of(subset)) for corpus, rows, subset in self._by_corpus(examples)))
        return np.concatenate(sides)[np.argsort(np.concatenate(rows))]

    def mean_size(self, length: int) -> float:
        return sum(share * corpus.mean_size(length) for share, corpus in zip(self.shares, self.corpora))

    def number_of_examples(self, length: int) -> int:
        return sum(corpus.number_of_examples(length) for corpus in self.corpora)

    def sample(self, rng: np.random.Generator, count: int, length: int) -> tuple[Numbers, Numbers]:
        """Random examples, without replacement within a pass over each corpus, and their sizes."""
        corpus_indices = rng.choice(len(self.corpora), count, p=self.shares)
        examples, sizes = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
        for index, corpus in enumerate(self.corpora):
            rows = corpus_indices == index
            if rows.any():
                sampled, sizes[rows] = corpus.sample(rng, int(rows.sum()), length)
                examples[rows] = self.numbered(index, sampled)
        return examples, sizes

    def texts(self, examples: Numbers, length: int) -> list[tuple[Numbers, ...]]:
        return self._apply(examples, lambda corpus, subset, rows: corpus.texts(subset, length))

    def languages(self, examples: Numbers, length: int) -> list[tuple[str, ...]]:
        return self._apply(examples, lambda corpus, subset, rows: corpus.languages(subset, length))

    def _apply(self, examples: Numbers, function: Callable[[Any, Numbers, Numbers], Iterable[Any]]) -> list[Any]:
        """Applies a function of a corpus, its examples and their rows; returns values in the order of all examples."""
        results: list[Any] = [None] * len(examples)
        for corpus, rows, subset in self._by_corpus(examples):
            for row, value in zip(rows.tolist(), function(corpus, subset, rows), strict=True):
                results[row] = value
        return results

    def negatives(self, examples: Numbers, length: int, keys: Numbers, *mined: bool) -> list[Numbers]:
        """Returns a negative of each example, from its corpus."""
        return self._apply(examples, lambda part, subset, rows: part.negatives(subset, length, keys[rows], *mined))

    def sizes_with_negatives(self, examples: Numbers, length: int, *mined: bool) -> Numbers:
        """Sizes (n,) of the examples, each with its longest possible negative."""
        sizes = np.empty(len(examples), dtype=np.int64)
        for corpus, rows, subset in self._by_corpus(examples):
            sizes[rows] = corpus.sizes_with_negatives(subset, length, *mined)
        return sizes

    def _by_corpus(self, examples: Numbers) -> Iterator[tuple[Any, Numbers, Numbers]]:
        """Yields each corpus of the examples, the rows of its examples, and their numbers in the corpus."""
        corpora, remainders = np.divmod(examples, _EXAMPLES_PER_CORPUS)
        for corpus in np.unique(corpora):
            rows = np.flatnonzero(corpora == corpus)
            yield self.corpora[corpus], rows, remainders[rows]


def unmixed(corpora: dict[str, Any]) -> dict[str, Any]:
    """{name: corpus}, with the parts of a mixed corpus in its place."""
    return {
        name: part
        for corpus_name, corpus in corpora.items()
        for name, part in getattr(corpus, "parts", {corpus_name: corpus}).items()
    }
