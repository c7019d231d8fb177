"""Next-sentence prediction with masked words, as BERT is pre-trained (MonoTrans, M1).

Legend: B pairs, T time, C channels, N predicted tokens.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from fairseq_xl.data.framing import pad_rows
from fairseq_xl.models.monotrans import XLMonoTransModel
from fairseq_xl.modules.initialisation import initialise
from fairseq_xl.objectives.base import Objective, Term
from fairseq_xl.objectives.mlm import MaskedObjective, MaskingConfig


SHORTEST = 8  # tokens of a pair: four symbols, and two of each segment


@dataclass
class NSPConfig(MaskingConfig):
    """Options of `nsp`."""

    length: int = 512  # most tokens of a pair, its symbols too (M6)
    frequency_exponent: float = 0.0  # positions are drawn uniformly, as in BERT

    def __post_init__(self):
        super().__post_init__()
        self.require("length", self.length >= SHORTEST, f"{SHORTEST} tokens or more")


@Objective.register
class NextSentence(MaskedObjective):
    """Masked words of two segments, and whether the second follows the first: one input, one pass, two terms.

    With probability 1/2 the second segment is replaced by one of another document that is about as long, so that length
    tells nothing. Positions run through the pair, as in BERT. Segments lose the ``</s>`` between their sentences, which
    BERT has only at the end of each.
    """

    Config = NSPConfig
    name = "nsp"
    reads = "documents"
    model_class = XLMonoTransModel
    framed_tokens = 4  # <s>, </s> between, and an end for each, since a segment that was cut has none

    @property
    def terms(self):
        """The masked words, and what the objective is named for."""
        return f"{self.name}_mlm", self.name

    @property
    def language_modeling(self):
        """The term of masked words."""
        return self.terms[:1]

    @property
    def example_length(self):
        """Tokens of a segment."""
        return (self.cfg.length - self.framed_tokens) // 2

    @property
    def positions(self):
        """Positions that the longest pair takes."""
        return self.cfg.length

    def heads(self, model_cfg):
        """BERT's pooler and classifier: linear (C, C), tanh, linear (C, 2)."""
        head = nn.Sequential(
            nn.Linear(model_cfg.embed_dim, model_cfg.embed_dim), nn.Tanh(), nn.Linear(model_cfg.embed_dim, 2)
        )
        head.apply(lambda module: initialise(module, model_cfg.init_std))
        return {self.name: head}

    def check(self, source):
        """`UserError` if there is no negative, before anything is trained."""
        source.sizes_with_negatives(np.arange(1), self.example_length)

    def takes(self, examples, sizes, source):
        """Tokens of each pair with the longest second segment that it may get."""
        return source.sizes_with_negatives(examples, self.example_length)

    def collate(self, draws, source):
        """As `masked`; segments (B, T), languages (B, 1); follows (B,), 1 for the real next segment."""
        given = draws.examples, self.example_length
        follows = (draws.keys & np.uint64(1)).astype(np.int64)
        pairs = source.texts(*given)
        replaced = np.flatnonzero(follows == 0)
        negatives = source.negatives(draws.examples[replaced], self.example_length, draws.keys[replaced])
        for place, negative in zip(replaced, negatives):
            pairs[place] = (pairs[place][0], negative)
        framed = [self.framing.pair(*(self._ended(segment) for segment in pair)) for pair in pairs]
        segments = [np.arange(len(tokens)) >= half for tokens, half in framed]
        return self.masked([tokens for tokens, _ in framed], draws.keys) | {
            "segments": torch.from_numpy(pad_rows(segments, 0)),
            "languages": self.languages(draws, source)[: len(pairs)],
            "follows": torch.from_numpy(follows),
        }

    def _ended(self, segment):
        eos = self.dictionary.eos()
        return np.append(segment[segment != eos], eos)

    def loss(self, model, batch):
        """{"nsp_mlm": `Term` over N masked words, "nsp": `Term` over B pairs}."""
        hidden = self.encode(model, batch, segments=batch["segments"])
        logits = model.heads[self.name](hidden[:, 0])
        loss = F.cross_entropy(logits.float(), batch["follows"], reduction="sum")
        masked, following = self.terms
        return {masked: self.predict(model, hidden, batch), following: Term(loss, len(batch["follows"]))}
