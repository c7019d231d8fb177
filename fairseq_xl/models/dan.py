"""The deep averaging network that mines hard negatives (Huang et al. 2019, section 3).

Shapes: B batch, T time, C channels.
"""

from dataclasses import dataclass
from typing import Any, Callable, Dict

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.models import BaseFairseqModel
from torch import Tensor, nn
from torch.nn import functional as F

from fairseq_xl.io.options import option


@dataclass
class DANConfig(FairseqDataclass):
    """A deep averaging network."""

    embed_dim: int = option(512, "channels of token and sentence embeddings", range="1 or more", transfer="embeddings")
    layers: int = option(2, "feed-forward layers after the average", range="0 to 1000")
    dropout: float = option(0.1, "probability of dropping a token from the average", range="probability")
    max_positions: int = option(512, "longest input, in tokens", range="1 or more")


class XLDANModel(BaseFairseqModel):
    """Embeds sentences: the average of their token embeddings goes through feed-forward layers (Iyyer et al. 2015).

    All languages share one network, so that dot products compare sentences across languages. Sentence embeddings have
    length 1: otherwise a few long ones would be the nearest neighbors of thousands of sentences.

    Names in the state dict: ``words.weight`` (V, C), ``feed_forward.N.{weight,bias}``.
    """

    #: name and example of such a model, for error messages
    description = "a deep averaging network: --arch xl_dan"
    #: kind of network: weights of another kind cannot be transferred
    backbone = "a deep averaging network"

    def __init__(self, cfg: DANConfig, vocab_size: int, pad: int):
        super().__init__()
        self.cfg, self.pad = cfg, pad
        self.words = nn.Embedding(vocab_size, cfg.embed_dim, padding_idx=pad)
        nn.init.normal_(self.words.weight, std=cfg.embed_dim**-0.25)
        self.feed_forward = nn.ModuleList(nn.Linear(cfg.embed_dim, cfg.embed_dim) for _ in range(cfg.layers))

    @classmethod
    def build_model(cls, cfg: DANConfig, task: Any) -> "XLDANModel":
        return cls(cfg, len(task.dictionary), task.dictionary.pad())

    def add_heads(self, heads: Dict[str, nn.Module]) -> None:
        """Raises ValueError for any head: no objective has one on this model."""
        if heads:
            raise ValueError(f"heads on a deep averaging network: {', '.join(heads)}")

    def vectors(self, words: Tensor) -> Tensor:
        """Padded tokens of sentences (B, T) -> sentence embeddings of length 1, (B, C) float32."""
        if self.training and self.cfg.dropout:
            draws = torch.rand(words.shape, device=words.device).masked_fill(words == self.pad, -1)
            dropped = (draws < self.cfg.dropout).scatter(1, draws.argmax(1, keepdim=True), False)  # one token stays
            words = words.masked_fill(dropped, self.pad)
        hidden = F.embedding_bag(words, self.words.weight, mode="mean", padding_idx=self.pad)
        for layer in self.feed_forward[:-1]:
            hidden = F.gelu(layer(hidden))
        hidden = self.feed_forward[-1](hidden) if self.feed_forward else hidden
        return F.normalize(hidden.float(), dim=-1)

    def forward(self, compute: Callable, batch: Any) -> Any:
        """Return `compute(self, batch)`, as in `XLEncoderModel`."""
        return compute(self, batch)

    def max_positions(self) -> int:
        return self.cfg.max_positions
