"""Cross-lingual paraphrase classification (Unicoder, U5): are two sentences translations of each other?

Legend: B pairs, T time, C channels.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from fairseq_xl.data.framing import pad_rows, padding_mask
from fairseq_xl.modules.initialisation import initialise
from fairseq_xl.objectives.base import Objective, ObjectiveConfig, Term


@dataclass
class ParaphraseConfig(ObjectiveConfig):
    """Options of `paraphrase`."""

    length: int = 128  # most tokens of each side (U3)
    negatives: str = "mined"  # those of `python -m fairseq_xl.mining`, or random: any that is about as long

    def __post_init__(self):
        super().__post_init__()
        self.require("negatives", self.negatives in ("mined", "random"), "mined or random")


@Objective.register
class ParaphraseClassification(Objective):
    """Tells a sentence and its translation from a sentence and a negative, from the last layer's first token.

    Each pair keeps its second sentence or gets a negative in its place, and either sentence may come first; all of that
    is drawn with the pair, each with probability 1/2. The sequence is that of TLM. A batch keeps its limit of tokens
    whatever is drawn: a pair counts with its longest negative.
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

    @property
    def mined(self):
        """Whether negatives are mined ones."""
        return self.cfg.negatives == "mined"

    def check(self, source):
        """Reads the mined negatives of a source."""
        source.prepare_negatives(self.example_length, self.mined)

    def takes(self, examples, sizes, source):
        """Tokens of each pair with its longest negative, or with its translation if that is longer."""
        return source.sizes_with_negatives(examples, self.example_length, self.mined)

    language_modeling = ()

    def collate(self, draws, source):
        """Tokens, positions and languages (B, T); target (B,), 1 for a translation."""
        given = draws.examples, self.example_length
        genuine = (draws.keys & np.uint64(1)).astype(bool)
        orders = (draws.keys >> np.uint64(1) & np.uint64(1)).astype(int)
        pairs = source.texts(*given)
        replaced = np.flatnonzero(~genuine)
        negatives = source.negatives(draws.examples[replaced], self.example_length, draws.keys[replaced], self.mined)
        for place, negative in zip(replaced, negatives):
            pairs[place] = (pairs[place][0], negative)
        rows, positions, languages = self.joined(pairs, source.languages(*given), orders)
        tokens = pad_rows(rows, self.dictionary.pad())
        return {
            "tokens": torch.from_numpy(tokens),
            "padding_mask": padding_mask(tokens, self.dictionary.pad()),
            "positions": positions,
            "languages": languages,
            "target": torch.from_numpy(genuine.astype(np.int64)),
        }

    def loss(self, model, batch):
        """{"paraphrase": `Term` over B pairs}."""
        logits = model.heads[self.name](self.encode(model, batch)[:, 0])
        loss = F.cross_entropy(logits.float(), batch["target"], reduction="sum")
        return {self.name: Term(loss, len(batch["target"]))}
