"""Source and target texts in the same language: documents and their titles, questions or summaries."""

import numpy as np

from fairseq_xl.data.framing import find_packings
from fairseq_xl.data.translation import TranslationDataset
from fairseq_xl.errors import UserError
from fairseq_xl.io.compressed import read_text
from fairseq_xl.io.text import is_blank, lines_in


def read_texts(path):
    r"""Reads the lines of a file of raw text; only \n or \r\n ends a line.

    Raises `UserError` for a missing or empty file, and for a line that is not UTF-8.
    """
    try:
        content = read_text(path)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file of raw text") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    lines = lines_in(content, path)
    if all(map(is_blank, lines)):
        raise UserError(f"{path} is empty: expected raw text, one line per example")
    return lines


def read_pairs(prefix, every):
    """Reads the lines of PREFIX.src and PREFIX.tgt: two lists of the same length.

    Args:
        prefix: common part of both paths, ``FOLDER/SPLIT.LANGUAGE``.
        every: whether every line must have text; if not, an empty source gets an empty output.

    Raises `UserError` as `read_texts` does, if the numbers of lines differ, and for an empty line if `every` is set.
    """
    paths = [f"{prefix}.{side}" for side in ("src", "tgt")]
    sides = [read_texts(path) for path in paths]
    if len(sides[0]) != len(sides[1]):
        raise UserError(f"{paths[0]} has {len(sides[0])} lines but {paths[1]} has {len(sides[1])}")
    for path, side in zip(paths, sides):
        for number, line in enumerate(side, start=1):
            if every and is_blank(line):
                raise UserError(f"{path}, line {number}: an empty line")
    return sides


class GenerationDataset(TranslationDataset):
    """Examples of same-language generation in one or more languages.

    Batches have the entries of `TranslationDataset`, ``batch`` for `XLDenoisingModel`, and ``language``, the language
    code, which is None in training, where batches mix languages.

    Args:
        directions: one `Direction` for each language, from the language into itself.
        codes: the language codes.
        framing: the `Framing` of the sources.
        pad: id of the padding symbol.
        train: whether to shuffle the examples.
        per_epoch: number of random examples in each epoch; None: all of them, once.
        positions: masked positions of each source, which the decoder predicts; None if it writes the whole line.
    """

    group_name = "language"

    def __init__(self, directions, codes, framing, pad, train, per_epoch=None, positions=None):
        super().__init__(directions, framing, pad, shuffle=train)
        self.codes, self.per_epoch, self.positions = codes, per_epoch, positions

    def direction_of(self, indices):
        """Numbers (n,) of the directions of examples (n,)."""
        return np.searchsorted(self.offsets, indices, side="right") - 1

    def ordered_indices(self):
        """The examples of this epoch, sorted by length, ties in random order.

        Outside of training: the examples of `sample` (None: all), sorted by language, then length.

        If `per_epoch` exceeds the number of examples, they come from several passes, each of which has every example
        once. fairseq seeds numpy with seed and epoch around this call.
        """
        indices = np.arange(len(self)) if self.sample is None else self.sample
        if self.shuffle:
            wanted = self.per_epoch or len(self)
            passes = [np.random.permutation(len(self)) for _ in range(-(-wanted // len(self)))]
            indices = np.concatenate(passes)[:wanted]
        sizes = self.sizes[indices]
        keys = (sizes[:, 0], sizes[:, 1]) if self.shuffle else (sizes[:, 0], sizes[:, 1], self.direction_of(indices))
        return indices[np.lexsort(keys)]

    def batch_by_size(self, indices, max_tokens=None, max_sentences=None, required_batch_size_multiple=1):
        """Batches of fairseq; outside training each has a single language."""
        groups = [indices]
        if not self.shuffle:
            numbers = self.direction_of(indices)
            groups = [indices[numbers == number] for number in range(len(self.codes)) if (numbers == number).any()]
        limits = max_tokens, max_sentences, required_batch_size_multiple
        return [batch for group in groups for batch in super(GenerationDataset, self).batch_by_size(group, *limits)]

    def collater(self, samples):
        """Collates B examples as `TranslationDataset` does, and adds ``batch`` and ``language``."""
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
                "padding_mask": collated["padding_mask"],
                **find_packings(self.pad, packing=tokens.numpy(), target_packing=collated["target"].numpy()),
                "languages": source["src_languages"][:, None],
                "prev_output_tokens": source["prev_output_tokens"],
                **{name: collated[name] for name in ("target", "predicted_positions", "target_lengths")},
            }
        return collated
