"""Masked language modeling, MLM (Lample & Conneau 2019, section 3.3).

Legend: B batch, T time, N predicted tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fairseq_xl.data import Numbers
from fairseq_xl.data.corpora.base import Texts
from fairseq_xl.data.corpora.token_stream import TokenStream
from fairseq_xl.data.framing import Framing, pad_rows
from fairseq_xl.data.noise.masking import choose_positions, corrupt
from fairseq_xl.data.plan.epoch_plan import BatchSpec
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.objectives.base import Batch, BlockConfig, Objective, ObjectiveConfig, Term


@dataclass
class MaskingConfig(ObjectiveConfig):
    """Options of masked objectives; the defaults are those of Lample & Conneau 2019, section 3.3."""

    mask_prob: float = 0.15  # share of the tokens that is predicted
    mask_token_prob: float = 0.8  # share of the predicted tokens that <mask> replaces
    random_token_prob: float = 0.1  # share of the predicted tokens that a random piece replaces
    frequency_exponent: float = 0.5  # positions are sampled with weight frequency^-exponent; 0: uniformly

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("mask_prob", 0 <= self.mask_prob <= 1, "from 0 to 1")
        self.require_exponent("frequency_exponent")
        require_shares(self)


def require_shares(cfg: Any) -> None:
    """Raises `UserError` unless `mask_token_prob` and `random_token_prob` are shares that sum to at most 1."""
    cfg.require("mask_token_prob", 0 <= cfg.mask_token_prob <= 1, "from 0 to 1")
    remainder = 1 - cfg.mask_token_prob
    cfg.require("random_token_prob", 0 <= cfg.random_token_prob <= remainder + 1e-9, f"from 0 to {remainder:g}")


class MaskedObjective(Objective):
    """Base class of objectives that mask framed sequences and predict the masked tokens."""

    Config: type[MaskingConfig] = MaskingConfig

    def __init__(self, cfg: Any, dictionary: XLDictionary, framing: Framing):
        super().__init__(cfg, dictionary, framing)
        self.position_weights = np.maximum(dictionary.counts, 1) ** -cfg.frequency_exponent

    def masked(self, rows: Sequence[Numbers], keys: np.ndarray) -> Batch:
        """Masks B framed sequences: tokens and padding_mask (B, T), predicted_positions and target (N,)."""
        cfg, dictionary = self.cfg, self.dictionary
        original = pad_rows(rows, dictionary.pad())
        weights = self.position_weights[original] if cfg.frequency_exponent else None
        mask = choose_positions(dictionary.is_piece[original], keys, cfg.mask_prob, weights)
        tokens = corrupt(
            original, mask, keys, dictionary.mask_index, dictionary.pieces, cfg.mask_token_prob, cfg.random_token_prob
        )
        return self.token_inputs(tokens) | {
            "predicted_positions": torch.from_numpy(np.flatnonzero(mask)),
            "target": torch.from_numpy(original[mask]),
        }

    def loss(self, model: Any, batch: Batch) -> dict[str, Term]:
        """{name of the objective: `Term` over the N masked tokens}."""
        return {self.name: self.predict(model, self.encode(model, batch), batch)}


@dataclass
class MLMConfig(MaskingConfig, BlockConfig):
    """Options of `mlm`."""


@Objective.register
class MLM(MaskedObjective):
    """Masked language modeling on blocks of a stream in one language."""

    Config = MLMConfig
    name = "mlm"
    corpus_class = TokenStream

    def collate(self, batch_spec: BatchSpec, corpus: Texts) -> Batch:
        """Tokens (B, T), languages (B, 1), predicted positions and targets (N,)."""
        rows = [self.framing.sentence(block) for (block,) in self.texts(batch_spec, corpus)]
        return self.masked(rows, batch_spec.keys) | {"languages": self.languages(batch_spec, corpus)}
