"""How token sequences are framed: one table, stored in every checkpoint.

=========== ===================================
sentence    ``<s> x </s>``
pair        ``<s> x </s> </s> y </s>``
stream      ``<s>`` + sentences that end in ``</s>``
generation  decoder input ``[xx] y``, output ``y </s>``
=========== ===================================

Under the framing ``xlm``, that of the published XLM weights, ``</s>`` stands in place of ``<s>``.
Binarised sentences end in ``</s>`` already, so that only the front is added here.
"""

from dataclasses import dataclass

import numpy as np
import torch

FRAMINGS = ("xl", "xlm")


@dataclass(frozen=True)
class Framing:
    """The framing named `name` over a dictionary's `bos` and `eos`."""

    name: str
    bos: int
    eos: int

    @classmethod
    def of(cls, name, dictionary):
        """The framing `name` (one of `FRAMINGS`) with the symbols of `dictionary`."""
        return cls(name, dictionary.bos(), dictionary.eos())

    @property
    def start(self):
        """The symbol in front of every encoder input."""
        return self.eos if self.name == "xlm" else self.bos

    def sentence(self, ended):
        """(T,) tokens that end in ``</s>``, or a part of a stream -> (T+1,)."""
        return np.concatenate(([self.start], ended))

    def pair(self, ended_x, ended_y):
        """Two ended sentences, (n,) and (m,) -> tokens (n+m+2,) and the length n+1 of the first half (X7)."""
        return np.concatenate(([self.start], ended_x, [self.eos], ended_y)), len(ended_x) + 1


def pad_rows(rows, fill):
    """Sequences of lengths t_1 … t_B -> an int64 array (B, max t), filled up on the right with `fill`."""
    lengths = np.fromiter((len(row) for row in rows), dtype=np.int64, count=len(rows))
    padded = np.full((len(rows), lengths.max()), fill, dtype=np.int64)
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = np.concatenate(rows)
    return padded


def padding_mask(tokens, pad):
    """Padded tokens (B, T), an array -> a bool tensor (B, T), True at padding; None where nothing is padded."""
    padding = tokens == pad
    return torch.from_numpy(padding) if padding.any() else None


def decoder_input(target, starts):
    """What a decoder reads to predict `target`, ``y </s>`` (B, T): ``[xx] y``, (B, T); `starts` (B, 1) are the [xx].

    Tensors. A row that others are longer than has ``</s>`` in front of its padding: harmless, the target there is
    padding.
    """
    return torch.cat((starts, target[:, :-1]), dim=1)
