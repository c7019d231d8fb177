"""Variable encoder-decoder pre-training (VECO section 3, V3-V7): one stack of layers is encoder and decoder.

Legend: B pairs, T time, C channels, N predicted tokens.
"""

from dataclasses import dataclass, replace

import numpy as np

from fairseq_xl.models.encoder import XLVecoModel
from fairseq_xl.objectives.base import Objective
from fairseq_xl.objectives.mlm import MaskedObjective, MaskingConfig
from fairseq_xl.objectives.tlm import TLM

# make the keys of y's noise, and of TLM's, from those of x's
_OTHER_SIDE = np.uint64(0xA5A5A5A5A5A5A5A5)
_TOGETHER = np.uint64(0x3C5A96E10F78D2B4)


@dataclass
class VecoConfig(MaskingConfig):
    """Options of both VECO objectives; `length` is that of each side."""

    frequency_exponent: float = 0.0  # masking as BERT: positions are drawn uniformly (V3)
    alpha: float = 0.5  # (V8)


@dataclass
class VecoMonolingualConfig(VecoConfig):
    """Options of `veco_mono`."""

    length: int = 512  # most tokens of a segment (V8)


@dataclass
class VecoBilingualConfig(VecoConfig):
    """Options of `veco_bi`."""

    mask_prob: float = 0.25  # share of the tokens that is predicted (V3)
    length: int = 128  # most tokens of a sentence (V8)


class VecoObjective(MaskedObjective):
    """IS-MLM on both sides and CS-MLM both ways (V4-V6).

    IS-MLM: the layers without cross-attention read a masked side and predict its masked tokens. CS-MLM: the same layers
    with a triangular mask read a masked side, cross-attend to the last states of the other side, through which no
    gradient flows, and predict the masked tokens at their own positions. One pass without cross-attention feeds both.

    `batch_tokens` counts x and y; since each of the 2B sides is filled up to the longest of them all, the layers see up
    to twice as many.
    """

    framed_tokens = 2
    model_class = XLVecoModel

    @property
    def example_length(self):
        """Tokens of a side before framing."""
        return self.cfg.length - 1

    @property
    def positions(self):
        """Positions that the longest side takes."""
        return self.cfg.length

    @property
    def terms(self):
        """The four terms: is_x, is_y, cs_xy (y predicted, x read) and cs_yx."""
        return tuple(f"{self.name}_{term}" for term in ("is_x", "is_y", "cs_xy", "cs_yx"))

    def collate(self, draws, source):
        """Tokens (2B, T) and languages (2B, 1), all x and then all y; per side predicted positions and targets (N,).

        The predicted positions count in the whole batch (2B, T), flattened.
        """
        sides = zip(*source.texts(draws.examples, self.example_length))
        rows = [self.framing.sentence(tokens) for side in sides for tokens in side]
        batch = self.masked(rows, np.concatenate((draws.keys, draws.keys ^ _OTHER_SIDE)))
        half = batch["tokens"].numel() // 2
        predicted, target = batch.pop("predicted"), batch.pop("target")
        for side, chosen in (("x", predicted < half), ("y", predicted >= half)):
            batch[side] = {"predicted": predicted[chosen], "target": target[chosen]}
        return batch | {"languages": self.languages(draws, source)}

    def loss(self, model, batch):
        """{"…_is_x", "…_is_y", "…_cs_xy", "…_cs_yx"}: `Term` over the N masked tokens of the side predicted."""
        tokens, padding_mask, languages = batch["tokens"], batch["padding_mask"], batch["languages"]
        states = model.encode(tokens, languages=languages, padding_mask=padding_mask)  # X^(N) and Y^(N): (2B, T, C)
        crossed = model.encode(
            tokens,
            languages=languages,
            causal=True,  # padding is on the right: no predicted position sees it
            memory=swap_halves(states.detach()),
            memory_padding_mask=None if padding_mask is None else swap_halves(padding_mask),
        )
        predicted = ((states, "x"), (states, "y"), (crossed, "y"), (crossed, "x"))
        return {name: self.predict(model, hidden, batch[side]) for name, (hidden, side) in zip(self.terms, predicted)}


def swap_halves(tensor):
    """(2B, …) -> (2B, …), the last B rows first."""
    return tensor.roll(len(tensor) // 2, 0)


@Objective.register
class VecoMonolingual(VecoObjective):
    """VECO on two adjacent segments of a document."""

    Config = VecoMonolingualConfig
    name = "veco_mono"
    reads = "documents"

    def check(self, source):
        """`UserError` if no document has two sentences, before anything is trained."""
        source.every(self.example_length)


@Objective.register
class VecoBilingual(VecoObjective):
    """VECO on a sentence and its translation, with TLM on the two as one sequence (V6)."""

    Config = VecoBilingualConfig
    name = "veco_bi"
    reads = "parallel"

    def __init__(self, cfg, dictionary, framing):
        super().__init__(cfg, dictionary, framing)
        self.tlm = TLM(cfg, dictionary, framing)

    @property
    def terms(self):
        """Those of VECO, and tlm."""
        return *super().terms, f"{self.name}_tlm"

    def collate(self, draws, source):
        """As above, and TLM's batch, with noise of its own, under "tlm"."""
        together = replace(draws, keys=draws.keys ^ _TOGETHER)
        return super().collate(draws, source) | {"tlm": self.tlm.collate(together, source)}

    def loss(self, model, batch):
        """The terms above and "veco_bi_tlm"."""
        (tlm,) = self.tlm.loss(model, batch["tlm"]).values()
        return super().loss(model, batch) | {f"{self.name}_tlm": tlm}
