"""VECO pre-training (Luo et al. 2020, section 2.2): the same Transformer layers serve as encoder and decoder.

Legend: B pairs, T time, C channels, N predicted tokens.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairseq_xl.data.corpora.base import Texts
from fairseq_xl.data.corpora.documents import AdjacentSegments
from fairseq_xl.data.corpora.sentence_pairs import SentencePairs
from fairseq_xl.data.framing import Framing, InputLength
from fairseq_xl.data.plan.epoch_plan import BatchSpec
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.models.encoder import XLVecoModel
from fairseq_xl.modules.packing import find_packing
from fairseq_xl.objectives.base import Batch, Objective, Term
from fairseq_xl.objectives.mlm import MaskedObjective, MaskingConfig
from fairseq_xl.objectives.tlm import TLM

# by XOR with these the random keys of x become those of y and of TLM
_Y_KEY = np.uint64(0xA5A5A5A5A5A5A5A5)
_TLM_KEY = np.uint64(0x3C5A96E10F78D2B4)


@dataclass
class VecoConfig(MaskingConfig):
    """Options of both objectives; `length` is the maximum of each text with its ``<s>``, also in `veco_bi`'s TLM."""

    frequency_exponent: float = 0.0  # masked positions are sampled uniformly, as in BERT (Luo et al. 2020, section 2.2)
    alpha: float = 0.5  # exponent of the sampling shares (Luo et al. 2020, section 3)


@dataclass
class VecoMonolingualConfig(VecoConfig):
    """Options of `veco_mono`."""

    length: int = 512  # maximum length of a segment, in tokens (Luo et al. 2020, table 7)


@dataclass
class VecoBilingualConfig(VecoConfig):
    """Options of `veco_bi`."""

    mask_prob: float = 0.25  # share of the tokens that is predicted (Luo et al. 2020, table 7)
    length: int = 128  # maximum length of a sentence, in tokens (Luo et al. 2020, table 7)


class VecoObjective(MaskedObjective):
    """Inner-sequence (IS-MLM) and cross-sequence (CS-MLM) masked language modeling of two texts, x and y.

    IS-MLM: the layers read a masked text without cross-attention and predict its masked tokens. CS-MLM: the same layers
    read a masked text with a causal mask, cross-attend to the last hidden states of the other text, through which no
    gradient flows, and predict the masked tokens. One pass without cross-attention serves both.

    `batch_tokens` counts x and y. Each of the 2B texts is padded to the longest; the layers skip this padding.
    """

    model_class = XLVecoModel

    @property
    def input_length(self) -> InputLength:
        """`InputLength` of the longest pair; `length` counts the tokens of each framed text."""
        return InputLength(text=self.cfg.length - 1, symbols=2, positions=self.cfg.length)

    @property
    def terms(self) -> tuple[str, ...]:
        """The four terms: is_x, is_y, cs_xy (reads x, predicts y) and cs_yx."""
        return tuple(f"{self.name}_{term}" for term in ("is_x", "is_y", "cs_xy", "cs_yx"))

    def collate(self, batch_spec: BatchSpec, corpus: Texts) -> Batch:
        """Tokens (2B, T) and languages (2B, 1), all x and then all y; "x" and "y": predictions of each.

        Predictions are `predicted_positions` (N,), in the flattened batch (2B, T), and `target` (N,).
        """
        sides = zip(*self.texts(batch_spec, corpus))
        rows = [self.framing.sentence(tokens) for side in sides for tokens in side]
        batch = self.masked(rows, np.concatenate((batch_spec.keys, batch_spec.keys ^ _Y_KEY)))
        half = batch["tokens"].numel() // 2
        predicted, target = batch.pop("predicted_positions"), batch.pop("target")
        for side, is_side in (("x", predicted < half), ("y", predicted >= half)):
            batch[side] = {"predicted_positions": predicted[is_side], "target": target[is_side]}
        swapped = find_packing(swap_halves(batch["tokens"]).numpy(), self.dictionary.pad())
        return batch | {"languages": self.languages(batch_spec, corpus), "memory_packing": swapped}

    def loss(self, model: Any, batch: Batch) -> dict[str, Term]:
        """{"…_is_x", "…_is_y", "…_cs_xy", "…_cs_yx"}: `Term` over the N masked tokens of the predicted text.

        The first stage, which trains cross-attention alone, leaves out the first two: they have no gradient.
        """
        tokens, padding_mask, languages = batch["tokens"], batch["padding_mask"], batch["languages"]
        # whether to compute terms without cross-attention: not in training if all their parameters are frozen
        trains = model.training and torch.is_grad_enabled()
        inner = not trains or any(parameter.requires_grad for parameter in model.parameters_without_memory)
        with torch.set_grad_enabled(torch.is_grad_enabled() and inner):  # X^(N) and Y^(N): (2B, T, C)
            states = self.encode(model, batch)
        crossed = model.encode(
            tokens,
            languages=languages,
            causal=True,  # the causal mask hides the padding too: it is on the right
            memory=swap_halves(states.detach()),
            memory_padding_mask=None if padding_mask is None else swap_halves(padding_mask),
            packing=batch["packing"],
            memory_packing=batch["memory_packing"],
        )
        predicted = ((states, "x"), (states, "y"), (crossed, "y"), (crossed, "x"))
        return {
            name: self.predict(model, hidden, batch[side])
            for name, (hidden, side) in zip(self.terms, predicted)
            if inner or hidden is crossed
        }


def swap_halves(tensor: Tensor) -> Tensor:
    """Swaps the first and the last B rows: (2B, …) -> (2B, …)."""
    return tensor.roll(len(tensor) // 2, 0)


@Objective.register
class VecoMonolingual(VecoObjective):
    """VECO on two adjacent segments of a document."""

    Config = VecoMonolingualConfig
    name = "veco_mono"
    corpus_class = AdjacentSegments

    def check(self, corpus: Any) -> None:
        corpus.check(self.input_length.text)


@Objective.register
class VecoBilingual(VecoObjective):
    """VECO on a sentence and its translation, and TLM on their concatenation."""

    Config = VecoBilingualConfig
    name = "veco_bi"
    corpus_class = SentencePairs

    def __init__(self, cfg: Any, dictionary: XLDictionary, framing: Framing):
        super().__init__(cfg, dictionary, framing)
        self.tlm = TLM(cfg, dictionary, framing)

    @property
    def terms(self) -> tuple[str, ...]:
        return *super().terms, f"{self.name}_tlm"

    def collate(self, batch_spec: BatchSpec, corpus: Texts) -> Batch:
        """The batch of VECO and, under "tlm", the batch of TLM with its own masked positions."""
        tlm_spec = replace(batch_spec, keys=batch_spec.keys ^ _TLM_KEY)
        return super().collate(batch_spec, corpus) | {"tlm": self.tlm.collate(tlm_spec, corpus)}

    def loss(self, model: Any, batch: Batch) -> dict[str, Term]:
        """The terms of VECO and "veco_bi_tlm", which the first stage leaves out too."""
        terms = super().loss(model, batch)
        if self.terms[0] in terms:
            (terms[f"{self.name}_tlm"],) = self.tlm.loss(model, batch["tlm"]).values()
        return terms
