"""Replaced-token detection: which tokens of a text have been replaced by random pieces (after Clark et al. 2020).

Legend: B batch, T time, C channels, N pieces.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from fairseq_xl.data.corpora.token_stream import TokenStream
from fairseq_xl.data.framing import find_padding, pad_rows
from fairseq_xl.data.noise.masking import choose_positions, corrupt
from fairseq_xl.objectives import Objective, ObjectiveConfig, Term


@dataclass
class ReplacedTokensConfig(ObjectiveConfig):
    """Options of `replaced_tokens`."""

    replace_prob: float = 0.15  # share of the pieces that a random piece replaces

    def __post_init__(self):
        super().__post_init__()
        self.require("replace_prob", 0 <= self.replace_prob <= 1, "from 0 to 1")


@Objective.register
class ReplacedTokens(Objective):
    """Classifies each piece of a block as original or replaced."""

    Config = ReplacedTokensConfig
    name = "replaced_tokens"
    corpus_class = TokenStream
    language_modeling = ()  # its term does not count in `ppl`

    def heads(self, model_cfg):
        """The classifier: a linear layer, (C, 1)."""
        return {self.name: nn.Linear(model_cfg.embed_dim, 1)}

    def collate(self, batch_spec, corpus):
        """Tokens (B, T), languages (B, 1), flat positions of pieces (N,); target (N,), 1 for replaced pieces."""
        rows = [self.framing.sentence(block) for (block,) in self.texts(batch_spec, corpus)]
        original, dictionary = pad_rows(rows, self.dictionary.pad()), self.dictionary
        pieces = dictionary.is_piece[original]  # (B, T) bool: no special symbol
        chosen = choose_positions(pieces, batch_spec.keys, self.cfg.replace_prob)
        tokens = corrupt(
            original,
            chosen,
            batch_spec.keys,
            dictionary.mask_index,
            dictionary.pieces,
            mask_share=0.0,
            random_share=1.0,
        )
        return {
            "tokens": torch.from_numpy(tokens),
            "padding_mask": find_padding(original, dictionary.pad()),
            "languages": self.languages(batch_spec, corpus),
            "pieces": torch.from_numpy(np.flatnonzero(pieces)),
            "target": torch.from_numpy((tokens != original)[pieces].astype(np.float32)),
        }

    def loss(self, model, batch):
        """{"replaced_tokens": `Term` over the N pieces}."""
        hidden = self.encode(model, batch).flatten(0, 1)[batch["pieces"]]  # (N, C)
        logits = model.heads[self.name](hidden).squeeze(1)
        loss = F.binary_cross_entropy_with_logits(logits.float(), batch["target"], reduction="sum")
        return {self.name: Term(loss, len(batch["target"]))}
