"""Next-sentence prediction with masked language modeling, BERT's objective (Artetxe et al. 2020, section 2).

Legend: B pairs, T time, C channels, N predicted tokens.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from fairseq_xl.data.corpora.documents import NextSegments
from fairseq_xl.data.framing import InputLength, pad_rows
from fairseq_xl.data.plan.epoch_plan import BatchSpec
from fairseq_xl.models.monotrans import XLMonoTransModel
from fairseq_xl.modules.embeddings import init_weights
from fairseq_xl.objectives.base import Batch, Objective, Term
from fairseq_xl.objectives.mlm import MaskedObjective, MaskingConfig

#: symbols of a pair: <s>, </s> between the segments, and a </s> after each segment
SYMBOLS = 4
SHORTEST = SYMBOLS + 4  # tokens of a pair: two of each segment


class Pooler(nn.Linear):
    """The linear layer of BERT's pooler, (…, C) -> (…, C); a new head takes over that of next-sentence prediction."""

    pretrained_from = "heads.nsp.0"


@dataclass
class NSPConfig(MaskingConfig):
    """Options of `nsp`."""

    length: int = 512  # maximum length of a pair, in tokens, with special symbols (Artetxe et al. 2020, section 3.2)
    frequency_exponent: float = 0.0  # masked positions are sampled uniformly, as in BERT

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("length", self.length >= SHORTEST, f"{SHORTEST} tokens or more")


@Objective.register
class NextSentence(MaskedObjective):
    """Predicts the masked tokens of two segments, and whether the second one follows the first one.

    Half of the second segments are of another document, and more where a segment is all that is left of a document
    (`NextSegments`). As in BERT, positions count through the whole pair, and ``</s>`` stands only at the end of each
    segment, not between its sentences.
    """

    Config = NSPConfig
    name = "nsp"
    corpus_class = NextSegments
    model_class = XLMonoTransModel

    @property
    def terms(self) -> tuple[str, ...]:
        return f"{self.name}_mlm", self.name

    @property
    def language_modeling(self) -> tuple[str, ...]:
        return self.terms[:1]

    @property
    def input_length(self) -> InputLength:
        """`InputLength` of the longest pair; `length` counts all of its tokens."""
        return InputLength(text=(self.cfg.length - SYMBOLS) // 2, symbols=SYMBOLS, positions=self.cfg.length)

    def heads(self, model_cfg: Any) -> dict[str, nn.Module]:
        """BERT's pooler and classifier: linear (C, C), tanh, linear (C, 2)."""
        channels = model_cfg.embed_dim
        head = nn.Sequential(nn.Linear(channels, channels), nn.Tanh(), nn.Linear(channels, 2))
        head.apply(lambda module: init_weights(module, model_cfg.init_std))
        return {self.name: head}

    def check(self, corpus: Any) -> None:
        corpus.check_negatives(self.input_length.text)

    def collate(self, batch_spec: BatchSpec, corpus: Any) -> Batch:
        """The tensors of `masked`, segments (B, T), languages (B, 1), and follows (B,), 1 for the real next segment."""
        follows = batch_spec.examples % 2
        pairs = self.texts(batch_spec, corpus)
        replaced = np.flatnonzero(follows == 0)
        negatives = corpus.negatives(batch_spec.examples[replaced], self.input_length.text, batch_spec.keys[replaced])
        for index, negative in zip(replaced, negatives):
            pairs[index] = (pairs[index][0], negative)
        ended = [[np.append(segment, self.dictionary.eos()) for segment in pair] for pair in pairs]
        framed = [self.framing.pair(*pair) for pair in ended]
        segments = [np.arange(len(tokens)) >= half for tokens, half in framed]
        return self.masked([tokens for tokens, _ in framed], batch_spec.keys) | {
            "segments": torch.from_numpy(pad_rows(segments, 0)),
            "languages": self.languages(batch_spec, corpus)[: len(pairs)],
            "follows": torch.from_numpy(follows),
        }

    def loss(self, model: Any, batch: Batch) -> dict[str, Term]:
        """{"nsp_mlm": `Term` over N masked tokens, "nsp": `Term` over B pairs}."""
        hidden = self.encode(model, batch)
        logits = model.heads[self.name](hidden[:, 0])
        loss = F.cross_entropy(logits.float(), batch["follows"], reduction="sum")
        masked, following = self.terms
        return {masked: self.predict(model, hidden, batch), following: Term(loss, len(batch["follows"]))}
