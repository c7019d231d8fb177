"""Sources and targets of translation and generation. n examples."""

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np

from fairseq_xl.data import Numbers
from fairseq_xl.data.corpora.base import ListedExamples
from fairseq_xl.data.corpora.sentence_pairs import SentencePairs
from fairseq_xl.data.vocabulary.text_encoder import truncate

LONGEST = 1 << 30  # tokens of a side without a limit


class DirectedPairs(SentencePairs):
    """Sentence pairs from a source into a target language; sizes of sources count what is put in front of them.

    Args:
        tag: id of a symbol in front of each source, after ``<s>``, for generated ones (Caswell et al. 2019), or None.
        arguments: the arguments of `SentencePairs`.
    """

    def __init__(self, tag: int | None, *arguments: Any):
        self.tag, self.added = tag, 1 + (tag is not None)
        super().__init__(*arguments)

    def sides_of(self, lines: Numbers) -> Numbers:
        """Numbers of tokens of framed sources and of targets of lines: (n, 2); an empty source stays empty."""
        return self._framed(super().sides_of(lines))

    def blocks(self) -> Iterator[tuple[int, Numbers]]:
        """Yields the first line of each block of the text, and the `sides_of` its lines: (b, 2)."""
        return ((first, self._framed(sizes)) for first, sizes in super().blocks())

    def in_memory(self, lines: Numbers | None = None) -> "TextPairs":
        """The pairs, or those of lines (n,), with sizes in memory, which can be truncated."""
        sources, targets = cast(Any, self.sides)
        return TextPairs(sources, targets, self.sizes, self.codes, lines)

    def _framed(self, sizes: Numbers) -> Numbers:
        return sizes + self.added * np.array([1, 0]) * (sizes > 1)

    def texts(self, lines: Numbers, length: int) -> list[tuple[Numbers, ...]]:
        """Source, with the tag, and target of each line."""
        pairs = super().texts(lines, length)
        return pairs if self.tag is None else [(np.append(self.tag, source), target) for source, target in pairs]


class TextPairs(ListedExamples):
    """Sources, and their targets if there are any, whose lengths are in memory; all lines or chosen ones are examples.

    Longer texts than `longest` are truncated, and keep their ``</s>``.

    Args:
        sources, targets: indexable token sequences that end in ``</s>``; targets or None.
        sizes: (lines, 2) their numbers of tokens; 1 for targets that are not there.
        codes: languages of source and target.
        lines: (n,) the lines that are examples; None: all.
        constraints: of generation, a tensor for each line; None: none.
        positions: of each source those that the decoder predicts; None: it writes a whole text.
    """

    def __init__(
        self,
        sources: Sequence[Any],
        targets: Sequence[Any] | None,
        sizes: Numbers,
        codes: tuple[str, ...],
        lines: Numbers | None = None,
        constraints: Any = None,
        positions: Sequence[Numbers | None] | None = None,
    ):
        self.sources, self.targets, self.sizes, self.codes = sources, targets, np.asarray(sizes), codes
        super().__init__(np.arange(len(self.sizes)) if lines is None else lines)
        self.constraints, self.masked_positions = constraints, positions
        self.longest = LONGEST, LONGEST  # of source and target, in tokens

    def truncate(self, longest: tuple[int, int]) -> Numbers:
        """Truncates sources and targets to these numbers of tokens; returns the lines (k,) that become shorter."""
        before = self.sides_of(self.example_ids)
        self.longest = min(longest[0] - 1, self.longest[0]), min(longest[1], self.longest[1])  # the encoder reads <s>
        return np.asarray(self.example_ids[(self.sides_of(self.example_ids) < before).any(axis=1)])

    def sides_of(self, lines: Numbers) -> Numbers:
        """Numbers of tokens of framed sources and of targets of lines (n,), as they are truncated: (n, 2)."""
        return np.minimum(self.sizes[lines], np.array(self.longest)) + np.array([1, 0])

    def sizes_of(self, lines: Numbers) -> Numbers:
        return self.sides_of(lines).sum(axis=1)

    def texts(self, lines: Numbers, length: int) -> list[tuple[Any, ...]]:
        """Source, and target or None, of each line."""
        sides = [*zip((self.sources, self.targets), self.longest, strict=True)]
        return [
            tuple(side if side is None else truncate(np.asarray(side[line]), longest) for side, longest in sides)
            for line in lines
        ]
