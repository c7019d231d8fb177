"""Texts and what is to be written of them, in the same language: titles, questions, summaries."""

import numpy as np

from fairseq_xl.data.framing import padding_mask
from fairseq_xl.data.translation import TranslationDataset
from fairseq_xl.errors import UserError
from fairseq_xl.io.compressed import read_text


def read_texts(path):
    r"""A file of raw text -> its lines; only \n, or \r\n, ends one.

    Raises `UserError` naming the file, and the line that is ill-encoded, for a missing or empty file or other bytes
    than UTF-8.
    """
    try:
        content = read_text(path, UserError)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file of raw text") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    if not content.strip():
        raise UserError(f"{path} is empty: expected raw text, one line an example")
    lines = content.removesuffix(b"\n").split(b"\n")
    for number, line in enumerate(lines):
        try:
            lines[number] = line.decode("utf-8" if number else "utf-8-sig").removesuffix("\r")
        except UnicodeDecodeError:
            raise UserError(f"{path}, line {number + 1}: not UTF-8") from None
    return lines


def read_pairs(prefix, every):
    """PREFIX.src and PREFIX.tgt -> their lines, two lists of the same length.

    Args:
        prefix: path of both, ``FOLDER/SPLIT.LANGUAGE``.
        every: every line must have text; else an empty source stays one, and gets an empty output.

    Raises `UserError` as `read_texts` does, for another number of lines, and for an empty line where it mustn't be.
    """
    paths = [f"{prefix}.{side}" for side in ("src", "tgt")]
    sides = [read_texts(path) for path in paths]
    if len(sides[0]) != len(sides[1]):
        raise UserError(f"{paths[0]} has {len(sides[0])} lines but {paths[1]} has {len(sides[1])}")
    for path, side in zip(paths, sides):
        for number, line in enumerate(side, start=1):
            if every and not line.strip():
                raise UserError(f"{path}, line {number}: an empty line")
    return sides


class GenerationDataset(TranslationDataset):
    """Examples of one or more languages; each `Direction` is from a language into itself.

    Batches have, beside what fairseq's generator reads, ``batch``, what `XLDenoisingModel` reads, and ``language``, its
    code, or None for a batch of training, where languages are mixed.

    Args:
        directions: one a language.
        codes: the languages' codes.
        framing: the `Framing` of the sources.
        pad: the padding symbol.
        train: draw at random.
        per_epoch: draw this many examples for each epoch; None takes all once.
        positions: masked positions of each source, which the decoder predicts; None if it writes the whole line.
    """

    def __init__(self, directions, codes, framing, pad, train, per_epoch=None, positions=None):
        super().__init__(directions, framing, pad, shuffle=train)
        self.codes, self.per_epoch, self.positions = codes, per_epoch, positions

    def direction_of(self, indices):
        """Examples (n,) -> the numbers of their directions, (n,)."""
        return np.searchsorted(self.offsets, indices, side="right") - 1

    def ordered_indices(self):
        """This epoch's examples by length, ties in random order; outside of training all, by language and length.

        More than there are come from several passes, each of which has every example once. (fairseq seeds numpy with
        seed and epoch around this call.)
        """
        indices = np.arange(len(self))
        if self.shuffle:
            wanted = self.per_epoch or len(self)
            passes = [np.random.permutation(len(self)) for _ in range(-(-wanted // len(self)))]
            indices = np.concatenate(passes)[:wanted]
        sizes = self.sizes[indices]
        keys = (sizes[:, 0], sizes[:, 1]) if self.shuffle else (sizes[:, 0], sizes[:, 1], self.direction_of(indices))
        return indices[np.lexsort(keys)]

    def batch_by_size(self, indices, max_tokens=None, max_sentences=None, required_batch_size_multiple=1):
        """fairseq's batches; outside of training each is of one language."""
        groups = [indices]
        if not self.shuffle:
            numbers = self.direction_of(indices)
            groups = [indices[numbers == number] for number in range(len(self.codes)) if (numbers == number).any()]
        limits = max_tokens, max_sentences, required_batch_size_multiple
        return [batch for group in groups for batch in super(GenerationDataset, self).batch_by_size(group, *limits)]

    def collater(self, samples):
        """B examples -> fairseq's batch, ``batch`` and ``language``."""
        collated = super().collater(samples)
        if not collated:
            return {}
        source = collated["net_input"]
        tokens = source["src_tokens"]
        if self.positions is not None:
            collated["positions"] = [self.positions[sample["id"]] for sample in samples]
        collated["language"] = None if self.shuffle else self.codes[int(self.direction_of(samples[0]["id"]))]
        if collated["target"] is not None:
            collated["batch"] = {
                "tokens": tokens,
                "padding_mask": padding_mask(tokens.numpy(), self.pad),
                "languages": source["src_languages"][:, None],
                "prev_output_tokens": source["prev_output_tokens"],
                "target": collated["target"],
            }
        return collated
