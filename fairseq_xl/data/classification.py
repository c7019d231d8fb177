"""Labeled sentences and sentence pairs from tab-separated files."""

from dataclasses import dataclass

import numpy as np
import torch
from fairseq.data import FairseqDataset

from fairseq_xl.data.framing import pad_rows
from fairseq_xl.data.text import cut
from fairseq_xl.errors import UserError
from fairseq_xl.io.compressed import read_text, stored

FIELDS = {1: "label TAB text", 2: "label TAB text TAB text"}


@dataclass(frozen=True)
class Example:
    """A labeled sentence or sentence pair."""

    label: str
    texts: tuple  # one or two texts
    language: str
    file: str
    line: int  # line of the file, from 1 on


def read_examples(path, language):
    """Reads a file of lines ``label TAB text`` or ``label TAB text TAB text``: a list of `Example`.

    Raises `UserError` that names file and line for a missing file, text that is not UTF-8, another number of fields
    than in the first line, and an empty label or text.
    """
    path = stored(path)
    if not path.is_file():
        raise UserError(f"{path}: no such file of labeled text in language {language!r}")
    content, examples = read_text(path), []
    if not content.strip():
        raise UserError(f"{path}, line 1: expected {' or '.join(FIELDS.values())}, and the file is empty")
    for number, raw in enumerate(content.removesuffix(b"\n").split(b"\n"), start=1):
        try:
            label, *texts = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r").split("\t")
        except UnicodeDecodeError:
            raise UserError(f"{path}, line {number}: not UTF-8") from None
        expected = FIELDS[len(examples[0].texts)] if examples else " or ".join(FIELDS.values())
        if len(texts) not in ([len(examples[0].texts)] if examples else FIELDS):
            found = f"{len(texts) + 1} fields" if texts else "1 field"
            raise UserError(f"{path}, line {number}: expected {expected}, found {found}")
        if not all(part.strip() for part in (label, *texts)):
            raise UserError(f"{path}, line {number}: an empty label or text")
        examples.append(Example(label, tuple(texts), language, str(path), number))
    return examples


def check_labels(examples, classes):
    """Raises `UserError` that names file and line of the first `Example` whose label is not one of `classes`."""
    for example in examples:
        if example.label not in classes:
            raise UserError(
                f"{example.file}, line {example.line}: label {example.label!r} is not one of the classes "
                f"{', '.join(classes)}"
            )


def frame(sides, framing, longest):
    """Frames one or two sentences as at most `longest` tokens (t,); the longer one is truncated first."""
    if len(sides) == 1:
        return framing.sentence(cut(sides[0], longest - 1))
    room = longest - 2  # <s>, and </s> between the two
    first = cut(sides[0], max(room // 2, room - len(sides[1])))
    return framing.pair(first, cut(sides[1], room - len(first)))[0]


def segments(tokens, eos, pad):
    """Segment ids (B, T) of framed sentences or pairs (B, T): 1 in the second half of a pair, else 0."""
    ends = tokens == eos
    ends[:, 0] = False  # the framing `xlm` begins with </s>
    return ((np.cumsum(ends, axis=1) > ends) & (tokens != pad)).astype(np.int64)


class ClassificationDataset(FairseqDataset):
    """Labeled examples as framed token sequences (Lample & Conneau 2019, section 4.1).

    Args:
        split: name of the split; the examples of `train` are shuffled.
        examples: list of `Example`.
        classes: all labels, in the order of the classes.
        rows: the framed token sequence of each example.
        dictionary: the joint `XLDictionary`.
        per_epoch: number of random examples in each epoch; None: all of them, once.
    """

    #: each epoch samples its own examples and batches: with fairseq's cache resuming would be inexact
    can_reuse_epoch_itr_across_epochs = False

    def __init__(self, split, examples, classes, rows, dictionary, per_epoch=None):
        self.split, self.examples, self.rows, self.per_epoch = split, examples, rows, per_epoch
        self.pad, self.eos = dictionary.pad(), dictionary.eos()
        check_labels(examples, classes)
        self.targets = np.array([classes.index(example.label) for example in examples])
        self.languages = np.array([dictionary.language_id(example.language) for example in examples])
        self.sizes = np.array([len(tokens) for tokens in rows])

    def __len__(self):
        return len(self.examples)

    def num_tokens(self, index):
        """Length of an input."""
        return int(self.sizes[index])

    def num_tokens_vec(self, indices):
        """(n,) lengths of inputs."""
        return self.sizes[indices]

    def size(self, index):
        """Length of an input."""
        return int(self.sizes[index])

    def ordered_indices(self):
        """The examples of this epoch, sorted by length, ties in random order.

        If `per_epoch` exceeds the number of examples, they come from several passes, each of which has every example
        once. fairseq seeds numpy with seed and epoch around this call.
        """
        indices = np.arange(len(self))
        if self.split == "train":
            wanted = self.per_epoch or len(self)
            passes = [np.random.permutation(len(self)) for _ in range(-(-wanted // len(self)))]
            indices = np.concatenate(passes)[:wanted]
        return indices[np.argsort(self.sizes[indices], kind="stable")]

    def __getitem__(self, index):
        return index

    def collater(self, indices):
        """Collates B indices: tokens, segments, padding_mask (B, T), languages (B, 1); target (B,), id (B,)."""
        if not indices:
            return {}
        tokens = pad_rows([self.rows[index] for index in indices], self.pad)
        padding = torch.from_numpy(tokens == self.pad)
        return {
            "id": torch.tensor(indices),
            "split": self.split,
            "nsentences": len(indices),
            "ntokens": int((~padding).sum()),
            "target": torch.from_numpy(self.targets[indices]),
            "batch": {
                "tokens": torch.from_numpy(tokens),
                "segments": torch.from_numpy(segments(tokens, self.eos, self.pad)),
                "languages": torch.from_numpy(self.languages[indices])[:, None],
                "padding_mask": padding if padding.any() else None,
            },
        }
