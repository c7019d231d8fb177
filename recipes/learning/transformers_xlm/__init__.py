"""Registers transformers' XLM as an architecture, to compare it with ours on the same batches and optimizer.

    bash recipes/xlm/pretrain.sh DATA SAVE_DIR … --user-dir recipes/learning/transformers_xlm --arch transformers_xlm

The sizes and `--init-std` are those of xl_xlm_tiny; position embeddings start from random numbers.
"""

from types import SimpleNamespace
from typing import Any

from fairseq.models import BaseFairseqModel, register_model
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import XLMConfig, XLMWithLMHeadModel

import fairseq_xl
from fairseq_xl.models.encoder import XLEncoderModel
from fairseq_xl.models.model_options import EncoderConfig

fairseq_xl.register()


@register_model("transformers_xlm", dataclass=EncoderConfig)
class TransformersXLM(XLEncoderModel):
    """transformers' XLM as an encoder for `mlm` and `clm`. Legend: B batch, T time, C channels, N predictions."""

    def __init__(self, cfg: EncoderConfig, vocab_size: int, pad: int, num_languages: int):
        BaseFairseqModel.__init__(self)
        self.cfg, self.heads = cfg, nn.ModuleDict()
        config = XLMConfig(
            vocab_size=vocab_size,
            emb_dim=cfg.embed_dim,
            n_layers=cfg.layers,
            n_heads=cfg.heads,
            dropout=cfg.dropout,
            attention_dropout=cfg.attention_dropout,
            gelu_activation=True,
            n_langs=max(num_languages, 2),  # with 1 it has no language embeddings
            max_position_embeddings=cfg.max_positions,
            embed_init_std=cfg.init_std,
            init_std=cfg.init_std,
            layer_norm_eps=cfg.layer_norm_eps,
        )
        config.pad_index = pad
        self.xlm = XLMWithLMHeadModel(config)
        self.output: Any = SimpleNamespace(cross_entropy=self._cross_entropy)

    def forward(self, compute: Any, batch: Any) -> Any:
        """Returns `compute(self, batch)`."""
        return compute(self, batch)

    def encode(  # type: ignore[override]  # without the inputs that the base reads for other objectives
        self,
        tokens: Tensor,
        positions: Tensor | None = None,
        *,
        languages: Tensor,
        padding_mask: Tensor | None = None,
        causal: bool = False,
        packing: Any = None,
    ) -> Tensor:
        """(B, T) -> (B, T, C), with languages (B, 1) and padding_mask (B, T); `packing` is not used."""
        self.xlm.transformer.causal = causal
        return self.xlm.transformer(
            tokens,
            attention_mask=None if padding_mask is None else (~padding_mask).long(),
            langs=languages.expand_as(tokens),
            position_ids=positions,
        ).last_hidden_state

    def _cross_entropy(self, hidden: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(self.xlm.pred_layer.proj(hidden), target, reduction="sum")
