"""Labelled examples and their inputs. n examples, B inputs, T tokens of an input."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fairseq_xl.data import Numbers
from fairseq_xl.data.corpora.base import ListedExamples
from fairseq_xl.data.framing import Framing
from fairseq_xl.data.vocabulary.text_encoder import truncate


@dataclass(slots=True)
class Input:
    """One input of the encoder; an example has one or several."""

    tokens: np.ndarray  # (t,) int32, framed
    target: dict[str, Any] = field(default_factory=dict)  # what the task type trains on and predicts from
    truncated: bool = False  # whether text of the example is missing

    def __post_init__(self) -> None:
        self.tokens = np.asarray(self.tokens, dtype=np.int32)


def frame(texts: Sequence[Any], framing: Framing, longest: int) -> Input:
    """Frames texts (t_i,) that end in ``</s>``; to have at most `longest` tokens, the longest is truncated first."""
    room, parts = longest - len(texts), list(texts)  # <s>, and </s> between two texts
    for rank, index in enumerate(sorted(range(len(texts)), key=lambda index: len(texts[index]))):
        parts[index] = truncate(texts[index], room // (len(texts) - rank))
        room -= len(parts[index])
    return Input(framing.texts(parts), truncated=sum(map(len, parts)) < sum(map(len, texts)))


def segments(tokens: np.ndarray, eos: int, pad: int) -> np.ndarray:
    """Segment ids (B, T) of framed texts (B, T): 1 from the second text on, else 0."""
    ends = tokens == eos
    ends[:, 0] = False  # the framing `xlm` begins with </s>
    return np.asarray((np.cumsum(ends, axis=1) > ends) & (tokens != pad), dtype=np.int64)


class LabelledExamples(ListedExamples):
    """Labelled examples, each with its `language` and a list of `Input` that are in one batch, in memory."""

    def __init__(self, examples: Sequence[Any], inputs: Sequence[list[Input]]):
        super().__init__(np.arange(len(examples)))
        self.examples, self.inputs = examples, inputs
        self.input_counts = np.array([len(group) for group in inputs])  # (n,)
        self.longest = np.array([max(len(item.tokens) for item in group) for group in inputs])  # (n,) tokens
        self.sizes = np.array([sum(len(item.tokens) for item in group) for group in inputs])  # (n,) of all inputs

    def sizes_of(self, examples: Numbers) -> Numbers:
        return self.sizes[examples]

    def inputs_of(self, examples: Numbers) -> list[list[Input]]:
        """The inputs of each example (n,)."""
        return [self.inputs[index] for index in examples]

    def texts(self, examples: Numbers, length: int) -> list[tuple[Numbers, ...]]:
        return [tuple(item.tokens for item in group) for group in self.inputs_of(examples)]

    def languages(self, examples: Numbers, length: int) -> list[tuple[str, ...]]:
        return [(self.examples[index].language,) for index in examples]
