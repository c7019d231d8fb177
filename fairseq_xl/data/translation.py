"""Sentence pairs as translation batches of fairseq."""

import logging
from functools import cached_property

import numpy as np
import torch
from fairseq.data import FairseqDataset

from fairseq_xl.data.balance import token_counts
from fairseq_xl.data.framing import decoder_input, decoder_target, find_packings, find_padding, pad_rows
from fairseq_xl.data.sampling import draw_passes

logger = logging.getLogger(__name__)


class Direction:
    """One translation direction: source sentences, their targets if there are any, and the two languages.

    Args:
        source_sentences, target_sentences: indexable sequences of token tensors that end in ``</s>``; targets or None.
        sizes: (n, 2) lengths of source and target, ``</s>`` included; None with an `order`.
        lines: numbers of the lines that are used; with an `order` the range of all lines.
        language_id: id of the source language.
        start: id of the symbol of the target language.
        tag: id of a symbol in front of each source; None: no tag.
        upsampling: number of times that an epoch of training reads the lines; may be a fraction.
        order: the `LengthOrder` of the pairs, for a `MappedTranslationDataset`.
        name: the codes of the languages, ``en-de``.
    """

    def __init__(
        self,
        source_sentences,
        target_sentences,
        sizes,
        lines,
        language_id,
        start,
        tag=None,
        upsampling=1,
        order=None,
        name="",
    ):
        self.source_sentences, self.target_sentences = source_sentences, target_sentences
        self.sizes = None if sizes is None else np.asarray(sizes)
        self.lines = lines if order is not None else np.asarray(lines)
        self.language_id, self.start = language_id, start
        self.tag, self.upsampling, self.order, self.name = tag, upsampling, order, name

    @property
    def num_pairs(self):
        """Number of lines that are used: with an `order` those that are empty on neither side."""
        return len(self.lines if self.order is None else self.order)

    @property
    def num_examples(self):
        """Number of examples that an epoch of training reads: at least one."""
        return max(1, round(self.upsampling * self.num_pairs))


class TranslationExamples(FairseqDataset):
    """Examples of one or more directions; an id is the offset of the direction plus the number of one of its lines.

    Encoder input ``<s> x </s>``, decoder input ``[xx] y``, target ``y </s>`` (framing `generation`). Subclasses say how
    long examples are and which are in a batch.

    Args:
        directions: `Direction`s.
        framing: the `Framing` of the task.
        pad: id of ``<pad>``.
        shuffle: whether the examples are for training.
        constraints: tensors of constraints of generation, by id; None: there are none.
    """

    #: each epoch has its own batches: with fairseq's cache resuming would be inexact
    can_reuse_epoch_itr_across_epochs = False

    def __init__(self, directions, framing, pad, shuffle, constraints=None):
        self.directions, self.framing, self.pad, self.shuffle = directions, framing, pad, shuffle
        self.constraints = constraints
        self.offsets = np.cumsum([0] + [len(direction.lines) for direction in directions])
        #: longest source, with ``<s>`` and tag, and longest target: longer ones are truncated
        self.max_positions = (np.iinfo(np.int64).max, np.iinfo(np.int64).max)

    def __len__(self):
        return int(self.offsets[-1])

    def __getitem__(self, index):
        number = int(np.searchsorted(self.offsets, index, side="right")) - 1
        direction = self.directions[number]
        line = int(direction.lines[index - self.offsets[number]])
        source = np.asarray(direction.source_sentences[line])
        source = _cut(
            np.append(direction.tag, source) if direction.tag is not None else source, self.max_positions[0] - 1
        )
        target = None
        if direction.target_sentences is not None:
            target = _cut(direction.target_sentences[line], self.max_positions[1])
        return {
            "id": index,
            "source": self.framing.sentence(source, direction.language_id),
            "target": target,
            "language_id": direction.language_id,
            "start": direction.start,
        }

    def collater(self, samples):
        """Collates B examples.

        Returns: ``net_input`` with src_tokens (B, S), src_languages (B,) and, with targets, prev_output_tokens (B, T);
        ``padding_mask`` (B, S) or None; the entries of `decoder_target`, where ``target`` is None without targets.
        """
        if not samples:
            return {}
        tokens = pad_rows([sample["source"] for sample in samples], self.pad)
        batch = {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "nsentences": len(samples),
            "ntokens": sum(len(sample["source"]) for sample in samples),
            "net_input": {
                "src_tokens": torch.from_numpy(tokens),
                "src_lengths": torch.tensor([len(sample["source"]) for sample in samples]),
                "src_languages": torch.tensor([sample["language_id"] for sample in samples]),
            },
            "padding_mask": find_padding(tokens, self.pad),
            "target": None,
        }
        if self.constraints is not None:
            batch["constraints"] = torch.stack([self.constraints[sample["id"]] for sample in samples])
        if samples[0]["target"] is not None:
            target = torch.from_numpy(pad_rows([sample["target"] for sample in samples], self.pad))
            starts = torch.tensor([[sample["start"]] for sample in samples])
            batch |= decoder_target(target, self.pad)
            batch["ntokens"] = len(batch["predicted_positions"])
            batch["net_input"]["prev_output_tokens"] = decoder_input(target, starts)
            if self.shuffle:  # training
                sources = batch["net_input"]["src_tokens"].numpy()
                packings = find_packings(self.pad, src_packing=sources, target_packing=target.numpy())
                batch["net_input"].update(packings)
        return batch


class TranslationDataset(TranslationExamples):
    """Translation examples with their lengths in memory; with one direction over all lines, ids are line numbers.

    `cut_at` truncates sentences, which keep their ``</s>``.
    """

    #: ascending ids of the examples that are read outside of training; None: all
    sample = None
    #: what distinguishes the groups of `groups`; used in log messages
    group_name = "direction"

    def groups(self):
        """The direction (n,) of each example, as a number, and the names of the directions."""
        numbers = np.repeat(np.arange(len(self.directions)), np.diff(self.offsets))
        return numbers, [direction.name for direction in self.directions]

    @cached_property
    def framed_sizes(self):
        """Lengths (n, 2) of source, with ``<s>`` and perhaps a tag, and target before truncation."""
        return np.concatenate([each.sizes[each.lines] + (1 + (each.tag is not None), 0) for each in self.directions])

    @cached_property
    def sizes(self):
        """Lengths (n, 2) of source and target."""
        return np.minimum(self.framed_sizes, self.max_positions)

    def cut_at(self, max_positions):
        """Truncates sentences to `max_positions` (encoder, decoder); returns the truncated examples, (k,)."""
        self.max_positions = max_positions
        self.__dict__.pop("sizes", None)
        return np.flatnonzero((self.framed_sizes > max_positions).any(axis=1))

    def num_tokens(self, index):
        """Length of the longer one of source and target."""
        return int(self.sizes[index].max())

    def num_tokens_vec(self, indices):
        """Lengths (n,) of the longer ones of source and target."""
        return self.sizes[indices].max(axis=1)

    def size(self, index):
        """Lengths of encoder input and target."""
        return tuple(self.sizes[index])

    def filter_indices_by_size(self, indices, max_sizes):
        """Splits indices into those that fit (encoder, decoder) positions and those that don't."""
        fits = (self.sizes[indices] <= max_sizes).all(axis=1)
        return indices[fits], indices[~fits].tolist()

    def token_counts(self, batches):
        """Numbers of tokens of batches without and with padding, of both sides: (n,) each."""
        return token_counts(batches, self.sizes.sum(axis=1), np.ones(len(self), dtype=np.int64), self.sizes)

    def ordered_indices(self):
        """The indices of one epoch, sorted by length, with ties in random order.

        The examples of a direction occur `upsampling` times. fairseq seeds numpy with seed and epoch around this call.
        """
        if self.shuffle:
            order = np.random.permutation(self._examples())
        else:
            order = np.arange(len(self)) if self.sample is None else self.sample
        sizes = self.sizes[order]
        return order[np.lexsort((sizes[:, 0], sizes[:, 1]))]

    def _examples(self):
        if all(direction.upsampling == 1 for direction in self.directions):
            return np.arange(len(self))
        rng, found = np.random.default_rng(np.random.randint(2**31)), []
        for offset, direction in zip(self.offsets, self.directions):
            found.append(offset + draw_passes(rng, len(direction.lines), direction.num_examples))
        return np.concatenate(found)


def _cut(ended, longest):
    tokens = np.asarray(ended)
    return tokens if len(tokens) <= longest else np.append(tokens[: longest - 1], tokens[-1])
