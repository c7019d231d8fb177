"""The base of corpora, from which objectives sample training examples.

An example is identified by a number: the start of a block, the line of a sentence or pair, or the index of a window.
`length` is the maximum length of a text, in tokens. Legend: n and B examples, k texts of each, t tokens of a text.
"""

from typing import TypeVar

import numpy as np

from fairseq_xl.data import Numbers
from fairseq_xl.data.corpora.sampling import draw_passes

CorpusClass = TypeVar("CorpusClass", bound=type["Corpus"])
#: value of the option `sample_break_mode` -> class of the corpus that objectives on blocks read with it
BREAK_MODES: dict[str, type["Corpus"]] = {}


class Texts:
    """Texts of examples, the input of `Objective.collate`."""

    #: the k language codes of all examples; a subclass may define `languages` instead
    codes: tuple[str, ...]

    def texts(self, examples: Numbers, length: int) -> list[tuple[Numbers, ...]]:
        """The k token arrays (t,) of each example: a block; two segments; a sentence and its translation."""
        raise NotImplementedError(f"{type(self).__name__}.texts")

    def languages(self, examples: Numbers, length: int) -> list[tuple[str, ...]]:
        """The k language codes of each example."""
        return [self.codes] * len(examples)


class Corpus(Texts):
    """Texts that training samples from; validation reads them in full or takes a fixed sample.

    A subclass defines `texts`, `mean_size`, `number_of_examples`, `examples_at`, and `codes` or `languages`.
    """

    break_mode: str  # value of `sample_break_mode` that selects a registered corpus
    num_languages = 1  # of its text in a data folder; 0: it is read from other files
    num_texts = 1  # texts of an example, of at most `length` tokens each
    described_text = "monolingual text"  # for messages
    #: number of sentences or pairs (estimated for a long text), from which sampling shares of languages are computed
    sentences: int

    @classmethod
    def register(cls, corpus: CorpusClass) -> CorpusClass:
        """Class decorator that registers a corpus of blocks of one language under its `break_mode`."""
        if corpus.break_mode in BREAK_MODES:
            raise ValueError(f"a corpus with sample_break_mode={corpus.break_mode} is registered twice")
        BREAK_MODES[corpus.break_mode] = corpus
        return corpus

    def mean_size(self, length: int) -> float:
        """Mean number of tokens of an example, all its texts together."""
        raise NotImplementedError(f"{type(self).__name__}.mean_size")

    def number_of_examples(self, length: int) -> int:
        """Number of `all_examples` (estimated for a long text)."""
        raise NotImplementedError(f"{type(self).__name__}.number_of_examples")

    def number_of_positions(self, length: int) -> int:
        """Number of positions of a pass over the corpus; each has one example or none."""
        return self.number_of_examples(length)

    def examples_at(self, positions: Numbers, length: int) -> tuple[Numbers, Numbers]:
        """Returns the examples at positions (n,), in this order, and their sizes: (m,) each, m at most n."""
        raise NotImplementedError(f"{type(self).__name__}.examples_at")

    def positions(self, examples: Numbers, length: int) -> Numbers:
        """Positions (n,) of examples (n,) among `all_examples`; of lines, their indices in the text."""
        return examples

    def for_pass(self, rng: np.random.Generator) -> "Corpus":
        """The corpus with the examples of one pass, if they are drawn anew for each."""
        return self

    def all_examples(self, length: int) -> tuple[Numbers, Numbers]:
        """All examples (n,) in order and their sizes (n,)."""
        return self.examples_at(np.arange(self.number_of_positions(length)), length)

    def sample(self, rng: np.random.Generator, count: int, length: int) -> tuple[Numbers, Numbers]:
        """Random examples (count,), without replacement within a pass over the corpus, and their sizes (count,)."""
        passes = []
        while count > 0:
            corpus = self.for_pass(rng)
            available = corpus.number_of_examples(length)
            passes.append(corpus.examples_at(draw_passes(rng, available, min(count, available)), length))
            count -= available
        examples, sizes = map(np.concatenate, zip(*passes, strict=True))
        return examples, sizes

    def sample_of_all(self, rng: np.random.Generator, count: int, length: int) -> tuple[Numbers, Numbers]:
        """Random `count` of `all_examples`, in order, and their sizes (count,), without arrays of all examples.

        `count` is at most `number_of_examples`; where that is estimated, there may be fewer.
        """
        return self.examples_at(np.sort(draw_passes(rng, self.number_of_examples(length), count)), length)


class ListedExamples(Corpus):
    """Base of corpora in memory; `example_ids` (n,) are ascending, and `sizes_of` returns their sizes."""

    num_languages = 0

    def __init__(self, example_ids: Numbers):
        self.example_ids = example_ids
        self.sentences = len(example_ids)

    def sizes_of(self, examples: Numbers) -> Numbers:
        """Numbers of tokens of examples (n,), all their texts together."""
        raise NotImplementedError(f"{type(self).__name__}.sizes_of")

    def mean_size(self, length: int) -> float:
        return float(self.sizes_of(self.example_ids).mean())

    def number_of_examples(self, length: int) -> int:
        return len(self.example_ids)

    def examples_at(self, positions: Numbers, length: int) -> tuple[Numbers, Numbers]:
        examples = self.example_ids[positions]
        return examples, self.sizes_of(examples)

    def positions(self, examples: Numbers, length: int) -> Numbers:
        return np.searchsorted(self.example_ids, examples)
