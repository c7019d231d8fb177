"""Framing of token sequences with special symbols; the name of the framing is stored in every checkpoint.

=========== ===================================
sentence    ``<s> x </s>``
pair        ``<s> x </s> </s> y </s>``
triple      ``<s> x </s> </s> y </s> </s> z </s>``
stream      ``<s>`` + sentences that end in ``</s>``
generation  decoder input ``[xx] y``, output ``y </s>``
=========== ===================================

Framings of published weights differ in

===== =========================================================================
xlm   ``</s>`` in place of ``<s>``
bert  one ``</s>`` between two texts: ``<s> x </s> y </s>``
mbart sentence ``x </s> [xx]``, for translation and generation only (mBART-25)
nllb  sentence ``[xx] x </s>``, for translation and generation only
===== =========================================================================

Binarized sentences already end in ``</s>``, so that only the symbols before them are added here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from fairseq_xl.data import Numbers
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError

FRAMINGS = ("xl", "xlm", "bert", "mbart", "nllb")
_OF_TRANSLATION = ("mbart", "nllb")  # with a symbol of the language


class InputLength(NamedTuple):
    """Lengths of an objective's longest example, in tokens."""

    text: int  # of each text as the corpus gives it: a block, a segment or a sentence
    symbols: int  # added by framing to all texts of the example together
    positions: int  # of the longest sequence that the model reads; at most --max-positions


@dataclass(frozen=True)
class Framing:
    """The framing named `name` with the symbols `bos` and `eos` of a dictionary, and its first language symbol."""

    name: str
    bos: int
    eos: int
    first_language: int

    @classmethod
    def of(cls, name: str, dictionary: XLDictionary) -> "Framing":
        """The framing `name` (one of `FRAMINGS`) with the symbols of `dictionary`."""
        return cls(name, dictionary.bos(), dictionary.eos(), dictionary.first_language)

    @property
    def start(self) -> int:
        """The symbol in front of every encoder input."""
        return self.eos if self.name == "xlm" else self.bos

    def sentence(self, ended: Numbers, language_id: int | None = None) -> Numbers:
        """Frames a sentence that ends in ``</s>``, or a block of a stream: (T,) -> (T+1,).

        `mbart` and `nllb` need its language, the index among the language symbols.
        """
        if self.name in _OF_TRANSLATION:
            if language_id is None:
                raise UserError(f"--framing {self.name} is for translation and generation only: choose another framing")
            symbol = [self.first_language + language_id]
            return np.concatenate((symbol, ended) if self.name == "nllb" else (ended, symbol))
        return np.concatenate(([self.start], ended))

    def pair(self, ended_x: Numbers, ended_y: Numbers) -> tuple[Numbers, int]:
        """Frames sentences (n,) and (m,) that end in ``</s>``: tokens (n+m+2,), length n+1 of the first half."""
        return self.texts([ended_x, ended_y]), len(ended_x) + 1

    def texts(self, ended: Sequence[Numbers]) -> Numbers:
        """Frames one or several texts that end in ``</s>`` as one sequence (T,)."""
        if self.name in _OF_TRANSLATION:
            raise UserError(f"--framing {self.name} is for single texts: choose another framing")
        parts = [part for text in ended for part in ([] if self.name == "bert" else [self.eos], text)]
        return np.concatenate(([self.start], *parts[1:])).astype(np.int64)


def pad_rows(rows: Sequence[Sequence[int] | np.ndarray], fill: int) -> Numbers:
    """Stacks sequences of lengths t_1 … t_B into an int64 array (B, max t), padded on the right with `fill`."""
    lengths = np.fromiter((len(row) for row in rows), dtype=np.int64, count=len(rows))
    padded = np.full((len(rows), lengths.max()), fill, dtype=np.int64)
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = np.concatenate(rows)
    return padded


def find_padding(tokens: Numbers, pad: int) -> torch.Tensor | None:
    """Bool tensor (B, T), True at padding, of an array of tokens (B, T); None if there is no padding."""
    padding = tokens == pad
    return torch.from_numpy(padding) if padding.any() else None
