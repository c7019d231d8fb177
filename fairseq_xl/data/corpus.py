"""The interface of a corpus: what objectives sample training examples from.

An example is identified by a number: the start of a block, the line of a sentence or pair, or the number of a window.
`length` is the maximum length of one text of an example, in tokens. Legend: n and B examples, k texts of each, t tokens
of a text.
"""

from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fairseq_xl.data.sampling import draw_passes

#: token ids, numbers of examples, sizes or keys
Numbers: TypeAlias = NDArray[np.integer[Any]]


@runtime_checkable
class Texts(Protocol):
    """Texts of examples: all that `Objective.collate` needs."""

    def texts(self, examples: Numbers, length: int) -> list[tuple[Numbers, ...]]:
        """The k token arrays (t,) of each example: a block; two segments; a sentence and its translation."""

    def languages(self, examples: Numbers, length: int) -> list[tuple[str, ...]]:
        """The k language codes of each example."""


@runtime_checkable
class Corpus(Texts, Protocol):
    """Texts that training samples from; validation reads them in full or takes a fixed sample."""

    #: number of sentences or pairs (estimated for a long text), from which sampling shares of languages are computed
    sentences: int

    def mean_size(self, length: int) -> float:
        """Mean number of tokens of an example, all its texts together."""

    def sample(self, rng: np.random.Generator, count: int, length: int) -> tuple[Numbers, Numbers]:
        """Random examples (count,), without replacement within a pass over the corpus, and their sizes (count,)."""

    def all_examples(self, length: int) -> tuple[Numbers, Numbers]:
        """All examples (n,) in order and their sizes (n,)."""

    def number_of_examples(self, length: int) -> int:
        """Number of `all_examples` (estimated for a long text)."""

    def sample_of_all(self, rng: np.random.Generator, count: int, length: int) -> tuple[Numbers, Numbers]:
        """Random `count` of `all_examples`, in order, and their sizes (count,), without arrays of all examples.

        `count` is at most `number_of_examples`; where that is estimated, there may be fewer.
        """

    def positions(self, examples: Numbers, length: int) -> Numbers:
        """Positions (n,) of examples (n,) among `all_examples`; for lines, their numbers in the text."""


class CorpusWithPositions(Corpus, Protocol):
    """A corpus that a pass over the data reads, in a random order of its positions."""

    def number_of_positions(self, length: int) -> int:
        """Number of positions of a pass over the corpus, at each of which there is an example or none."""

    def examples_at(self, positions: Numbers, length: int) -> tuple[Numbers, Numbers]:
        """The examples that are at positions (n,), in this order, and their sizes: (m,) each, m at most n."""


@runtime_checkable
class CorpusWithNegatives(Corpus, Protocol):
    """A corpus of pairs that also samples negatives: second texts that do not belong to the first text."""

    def negatives(self, examples: Numbers, length: int, keys: Numbers) -> list[Numbers]:
        """A negative (t,) for each example (B,): a function of the example and its key (B,) uint64."""

    def sizes_with_negatives(self, examples: Numbers, length: int) -> Numbers:
        """Sizes (n,) of the examples (n,) with the longest negative that each may get."""


@runtime_checkable
class CorpusWithMinedNegatives(Corpus, Protocol):
    """A corpus of sentence pairs whose negatives are mined, or sampled from all sentences of similar length."""

    def prepare_negatives(self, length: int, mined: bool) -> None:
        """Reads what `negatives` needs before worker processes start; raises `UserError` if it is missing."""

    def negatives(self, examples: Numbers, length: int, keys: Numbers, mined: bool) -> list[Numbers]:
        """A negative (t,) for each example (B,): a function of the example and its key (B,) uint64."""

    def sizes_with_negatives(self, examples: Numbers, length: int, mined: bool) -> Numbers:
        """Sizes (n,) of the examples (n,) with the longest negative that each may get."""


class ListedExamples:
    """Base of corpora in memory: some of the numbered examples, whose sizes `sizes_of` gives.

    Args:
        numbers: (n,) ascending.
    """

    def __init__(self, numbers: Numbers):
        self.numbers = numbers
        self.sentences = len(numbers)

    def sizes_of(self, numbers: Numbers) -> Numbers:
        """Numbers of tokens of examples (n,), all their texts together."""
        raise NotImplementedError(f"{type(self).__name__}.sizes_of")

    def mean_size(self, length: int) -> float:
        """Mean number of tokens of an example, all its texts together."""
        return float(self.sizes_of(self.numbers).mean())

    def sample(self, rng: np.random.Generator, count: int, length: int) -> tuple[Numbers, Numbers]:
        """Random examples (count,), without replacement within a pass, and their sizes (count,)."""
        return self.examples_at(draw_passes(rng, len(self.numbers), count), length)

    def all_examples(self, length: int) -> tuple[Numbers, Numbers]:
        """All examples (n,) in order and their sizes (n,)."""
        return self.numbers, self.sizes_of(self.numbers)

    def number_of_examples(self, length: int) -> int:
        """Number of examples."""
        return len(self.numbers)

    number_of_positions = number_of_examples

    def examples_at(self, positions: Numbers, length: int) -> tuple[Numbers, Numbers]:
        """The examples at positions (n,), and their sizes (n,)."""
        numbers = self.numbers[positions]
        return numbers, self.sizes_of(numbers)

    def sample_of_all(self, rng: np.random.Generator, count: int, length: int) -> tuple[Numbers, Numbers]:
        """Random `count` examples, in order, and their sizes (count,)."""
        return self.examples_at(np.sort(draw_passes(rng, len(self.numbers), count)), length)

    def positions(self, examples: Numbers, length: int) -> Numbers:
        """Positions (n,) of examples (n,)."""
        return np.searchsorted(self.numbers, examples)
