"""Cross-lingual paraphrase classification (Unicoder, U5): are two sentences translations of each other?

Legend: B pairs, T time, C channels.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from fairseq_xl.data.framing import pad_rows
from fairseq_xl.modules.initialisation import initialise
from fairseq_xl.objectives.base import Objective, ObjectiveConfig, Term


@dataclass
class ParaphraseConfig(ObjectiveConfig):
    """Options of `paraphrase`."""

    length: int = 128  # most tokens of each side (U3)
    negatives: str = "mined"  # those of `python -m fairseq_xl.mining`, or random: any other sentence

    def __post_init__(self):
        super().__post_init__()
        self.require("negatives", self.negatives in ("mined", "random"), "mined or random")


@Objective.register
class ParaphraseClassification(Objective):
    """Tells a sentence and its translation from a sentence and a negative, from the last layer's first token.

    Each pair keeps its second sentence or gets a negative in its place, and either sentence may come first; all of that
    is drawn with the pair, each with probability 1/2. The sequence is that of TLM.
    """

    Config = ParaphraseConfig
    name = "paraphrase"
    reads = "parallel"
    framed_tokens = 2

    def heads(self, model_cfg):
        """The classifier: dropout and a linear layer (C, 2)."""
        layer = nn.Linear(model_cfg.embed_dim, 2)
        initialise(layer, model_cfg.init_std)
        return {self.name: nn.Sequential(nn.Dropout(model_cfg.dropout), layer)}

    def collate(self, draws, source):
        """Tokens, positions and languages (B, T); target (B,), 1 for a translation."""
        given = draws.examples, self.example_length
        genuine = (draws.keys & np.uint64(1)).astype(bool)
        orders = (draws.keys >> np.uint64(1) & np.uint64(1)).astype(int)
        pairs = source.texts(*given)
        replaced = np.flatnonzero(~genuine)
        negatives = source.negatives(
            draws.examples[replaced], self.example_length, draws.keys[replaced], self.cfg.negatives == "mined"
        )
        for place, negative in zip(replaced, negatives):
            pairs[place] = (pairs[place][0], negative)
        rows, positions, languages = self.joined(pairs, source.languages(*given), orders)
        tokens = pad_rows(rows, self.dictionary.pad())
        padding = tokens == self.dictionary.pad()
        return {
            "tokens": torch.from_numpy(tokens),
            "padding_mask": torch.from_numpy(padding) if padding.any() else None,
            "positions": positions,
            "languages": languages,
            "target": torch.from_numpy(genuine.astype(np.int64)),
        }

    def loss(self, model, batch):
        """{"paraphrase": `Term` over B pairs}."""
        hidden = model.encode(
            batch["tokens"],
            positions=batch["positions"],
            languages=batch["languages"],
            padding_mask=batch["padding_mask"],
        )
        logits = model.heads[self.name](hidden[:, 0])
        loss = F.cross_entropy(logits.float(), batch["target"], reduction="sum")
        return {self.name: Term(loss, len(batch["target"]))}
