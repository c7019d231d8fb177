"""Registers fairseq's RoBERTa as an architecture, to compare it with ours on the same batches and optimizer.

    bash recipes/xlm/pretrain.sh DATA SAVE_DIR … --user-dir recipes/learning/fairseq_roberta --arch fairseq_roberta

Weights start as in fairseq's RobertaModel, with a standard deviation of 0.02.
"""

from types import SimpleNamespace
from typing import Any

from fairseq.models import BaseFairseqModel, register_model
from fairseq.models.roberta import RobertaEncoder
from fairseq.modules.transformer_sentence_encoder import init_bert_params
from torch import Tensor, nn
from torch.nn import functional as F

import fairseq_xl
from fairseq_xl.models.encoder import XLEncoderModel
from fairseq_xl.models.model_options import EncoderConfig

fairseq_xl.register()


@register_model("fairseq_roberta", dataclass=EncoderConfig)
class FairseqRoberta(XLEncoderModel):
    """fairseq's RoBERTa as an encoder for `mlm`. Legend: B batch, T time, C channels, N predictions."""

    def __init__(self, cfg: EncoderConfig, dictionary: Any):
        BaseFairseqModel.__init__(self)
        self.cfg, self.heads = cfg, nn.ModuleDict()
        sizes = SimpleNamespace(
            encoder_layers=cfg.layers,
            encoder_embed_dim=cfg.embed_dim,
            encoder_ffn_embed_dim=cfg.ffn_dim,
            encoder_attention_heads=cfg.heads,
            dropout=cfg.dropout,
            attention_dropout=cfg.attention_dropout,
            max_positions=cfg.max_positions,
        )
        self.roberta = RobertaEncoder(sizes, dictionary).apply(init_bert_params)
        self.output: Any = SimpleNamespace(cross_entropy=self._cross_entropy)

    @classmethod
    def build_model(cls, cfg: EncoderConfig, task: Any) -> "FairseqRoberta":
        """The model for `task.dictionary`."""
        return cls(cfg, task.dictionary)

    def forward(self, compute: Any, batch: Any) -> Any:
        """Returns `compute(self, batch)`."""
        return compute(self, batch)

    def encode(self, tokens: Tensor, positions: Tensor | None = None, **inputs: Any) -> Tensor:
        """(B, T) -> (B, T, C); padding is found in `tokens`, and positions are counted from the left.

        Raises:
            ValueError: for positions or causal attention, which RoBERTa does not have
        """
        if positions is not None or inputs.get("causal"):
            raise ValueError("fairseq's RoBERTa reads whole inputs from position 0, without a causal mask: use mlm")
        return self.roberta.extract_features(tokens)[0]

    def _cross_entropy(self, hidden: Tensor, target: Tensor) -> Tensor:
        """(N, C), (N) -> sum over the predictions"""
        return F.cross_entropy(self.roberta.output_layer(hidden), target, reduction="sum")
