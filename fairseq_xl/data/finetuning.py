"""Inputs of fine-tuning tasks, and batches of whole examples. B: inputs, T: time."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from fairseq.data import FairseqDataset

from fairseq_xl.data.balance import token_counts
from fairseq_xl.data.framing import find_packing, pad_rows
from fairseq_xl.data.text import cut


@dataclass(slots=True)
class Input:
    """One input of the encoder; an example has one or several."""

    tokens: np.ndarray  # (t,) int32, framed
    target: dict[str, Any] = field(default_factory=dict)  # what the task type trains on and predicts from
    truncated: bool = False  # whether text of the example is missing

    def __post_init__(self):
        self.tokens = np.asarray(self.tokens, dtype=np.int32)


def frame(texts, framing, longest):
    """Frames token ids (t_i,) that end in ``</s>`` as one `Input` of at most `longest` tokens.

    The longest text is truncated first.
    """
    room, kept = longest - len(texts), list(texts)  # <s>, and </s> between two texts
    for left, number in enumerate(sorted(range(len(texts)), key=lambda number: len(texts[number]))):
        kept[number] = cut(texts[number], room // (len(texts) - left))
        room -= len(kept[number])
    return Input(framing.texts(kept), truncated=sum(map(len, kept)) < sum(map(len, texts)))


def segments(tokens, eos, pad):
    """Segment ids (B, T) of framed texts (B, T): 1 from the second text on, else 0."""
    ends = tokens == eos
    ends[:, 0] = False  # the framing `xlm` begins with </s>
    return ((np.cumsum(ends, axis=1) > ends) & (tokens != pad)).astype(np.int64)


class FineTuningDataset(FairseqDataset):
    """Examples as framed token sequences; all inputs of an example are in the same batch.

    Args:
        split: name of the split; the examples of `train` are shuffled.
        examples: the examples, with a `language` each.
        inputs: for each example, the list of its `Input`.
        collate: function from the `Input`s of a batch to a dict of tensors, the targets.
        dictionary: the joint `XLDictionary`.
        per_epoch: number of random examples in each epoch; None: all of them, once.
    """

    #: each epoch samples its own examples and batches: with fairseq's cache resuming would be inexact
    can_reuse_epoch_itr_across_epochs = False
    #: ascending numbers of the examples that are read outside of training; None: all
    sample = None
    #: what distinguishes the groups of `groups`; used in log messages
    group_name = "language"

    def __init__(
        self,
        split: str,
        examples: list[Any],
        inputs: list[list[Input]],
        collate: Callable[[list[Input]], dict[str, torch.Tensor]],
        dictionary: Any,
        per_epoch: int | None = None,
    ):
        self.split, self.examples, self.inputs, self.per_epoch = split, examples, inputs, per_epoch
        self.collate_target = collate
        self.pad, self.eos = dictionary.pad(), dictionary.eos()
        self.languages = np.array([dictionary.language_id(example.language) for example in examples])
        # (n,) tokens of each example's longest input; fairseq reads `sizes`
        self.sizes = np.array([max(len(each.tokens) for each in of_one) for of_one in inputs])
        self.input_counts = np.array([len(of_one) for of_one in inputs])  # (n,)
        self.padded_lengths = self.sizes * self.input_counts  # (n,) tokens of all its inputs, with padding
        self.lengths = np.array([sum(len(each.tokens) for each in of_one) for of_one in inputs])  # (n,) without

    def __len__(self):
        return len(self.examples)

    def groups(self):
        """The language (n,) of each example, as a number, and the codes of the languages."""
        return _indices_of_names([example.language for example in self.examples])

    def num_tokens(self, index):
        """Tokens of an example, padding included."""
        return int(self.padded_lengths[index])

    def num_tokens_vec(self, indices):
        """(n,) tokens of examples, padding included."""
        return self.padded_lengths[indices]

    def size(self, index):
        """Tokens of an example's longest input."""
        return int(self.sizes[index])

    def ordered_indices(self):
        """The examples of an epoch in training, else those of `sample`, sorted by length, ties in random order.

        If `per_epoch` exceeds the number of examples, they come from several passes, each of which has every example
        once. fairseq seeds numpy with seed and epoch around this call.
        """
        indices = np.arange(len(self)) if self.sample is None else self.sample
        if self.split == "train":
            indices = draw(indices, self.per_epoch or len(self))
        return indices[np.lexsort((self.padded_lengths[indices], self.sizes[indices]))]

    def batch_by_size(self, indices, max_tokens=None, max_sentences=None, required_batch_size_multiple=1):
        """Batches of whole examples, in the order of `indices`.

        A batch has at most `max_sentences` examples, and its inputs, padded to the longest one, at most `max_tokens`.
        """
        batches, batch, inputs, longest = [], [], 0, 0
        for index in np.asarray(indices).tolist():
            more, size = len(self.inputs[index]), int(self.sizes[index])
            too_large = max_tokens is not None and max(longest, size) * (inputs + more) > max_tokens
            if batch and (too_large or len(batch) == max_sentences):
                batches.append(batch)
                batch, inputs, longest = [], 0, 0
            batch.append(index)
            inputs, longest = inputs + more, max(longest, size)
        return [*batches, batch] if batch else batches

    def token_counts(self, batches):
        """Numbers of tokens of batches without and with padding: (n,) each."""
        return token_counts(batches, self.lengths, self.input_counts, self.sizes[:, None])

    def __getitem__(self, index):
        return index

    def collater(self, indices):
        """Collates n examples of B inputs.

        Returns: {"id": (n,), "inputs_per_example": list of n numbers, "target": of the task type, "batch": tokens,
        segments, padding_mask (B, T) and languages (B, 1)} and fairseq's counts.
        """
        if not indices:
            return {}
        inputs = [each for index in indices for each in self.inputs[index]]
        inputs_per_example = [len(self.inputs[index]) for index in indices]
        tokens = pad_rows([each.tokens for each in inputs], self.pad)
        padding = torch.from_numpy(tokens == self.pad)
        return {
            "id": torch.tensor(indices),
            "split": self.split,
            "nsentences": len(indices),
            "ntokens": int((~padding).sum()),
            "inputs_per_example": inputs_per_example,
            "target": self.collate_target(inputs),
            "batch": {
                "tokens": torch.from_numpy(tokens),
                "segments": torch.from_numpy(segments(tokens, self.eos, self.pad)),
                "languages": torch.from_numpy(np.repeat(self.languages[indices], inputs_per_example))[:, None],
                "padding_mask": padding if padding.any() else None,
                "packing": find_packing(tokens, self.pad),
            },
        }


class SubtaskDataset(FineTuningDataset):
    """Examples of several subtasks, with a `subtask` each; the examples of a batch are of one subtask.

    Args:
        alpha: exponent of the subtasks' sizes in their shares of an epoch; None: 1, so that without `per_epoch` each
            example is read once.

    The other arguments are those of `FineTuningDataset`. Without `per_epoch` an epoch has as many examples as there
    are.
    """

    group_name = "subtask and language"

    def __init__(self, split, examples, inputs, collate, dictionary, per_epoch=None, alpha=None):
        super().__init__(split, examples, inputs, collate, dictionary, per_epoch)
        names = list(dict.fromkeys(example.subtask for example in examples))
        self.subtasks = np.array([names.index(example.subtask) for example in examples])
        self.counts = shares_of(np.bincount(self.subtasks), per_epoch or len(examples), 1.0 if alpha is None else alpha)

    def groups(self):
        """The subtask and language (n,) of each example, as a number, and the names of both."""
        return _indices_of_names([f"{example.subtask} {example.language}" for example in self.examples])

    def ordered_indices(self):
        """The examples of this epoch by subtask; those of a subtask as in `FineTuningDataset`."""
        parts = []
        read = np.arange(len(self)) if self.sample is None else self.sample
        for subtask, count in enumerate(self.counts.tolist()):
            indices = read[self.subtasks[read] == subtask]
            if self.split == "train":
                indices = draw(indices, count)
            parts.append(indices[np.lexsort((self.padded_lengths[indices], self.sizes[indices]))])
        return np.concatenate(parts)

    def batch_by_size(self, indices, max_tokens=None, max_sentences=None, required_batch_size_multiple=1):
        """Batches of whole examples of one subtask each."""
        indices = np.asarray(indices, dtype=np.int64)
        batches = []
        for subtask in range(len(self.counts)):
            own = indices[self.subtasks[indices] == subtask]
            batches += super().batch_by_size(own, max_tokens, max_sentences, required_batch_size_multiple)
        return batches

    def batch_kinds(self, batches):
        """Number (n,) of the subtask of each batch."""
        return self.subtasks[[batch[0] for batch in batches]]


def _indices_of_names(names):
    """Index (n,) of each name in the list of distinct names, and this list."""
    distinct = {name: index for index, name in enumerate(dict.fromkeys(names))}
    return np.array([distinct[name] for name in names]), list(distinct)


def draw(indices, count):
    """`count` of the indices (n,) in random order, from passes that have each of them once.

    fairseq seeds numpy with seed and epoch.
    """
    passes = [np.random.permutation(indices) for _ in range(-(-count // len(indices)))]
    return np.concatenate(passes)[:count]


def shares_of(sizes, total, alpha):
    """Divides `total` examples among subtasks of sizes (s,): counts (s,) in proportion to size^alpha, 1 or more."""
    weights = np.asarray(sizes, dtype=float) ** alpha
    ends = np.rint(np.cumsum(weights) / weights.sum() * total).astype(np.int64)
    return np.maximum(np.diff(ends, prepend=0), 1)
