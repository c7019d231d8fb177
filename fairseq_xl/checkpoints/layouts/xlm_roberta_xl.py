"""XLM-R XL and XXL of transformers (Goyal et al. 2021): XLM-R with pre-LN and without LayerNorm of the embeddings."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fairseq_xl.checkpoints.layouts.base import Layout
from fairseq_xl.checkpoints.layouts.bert import encoder_names
from fairseq_xl.checkpoints.layouts.name_mapping import Names
from fairseq_xl.checkpoints.layouts.xlm_roberta import XlmRoberta

_LAYER = "roberta.encoder.layer.{n}."
_NORMS: Names = {
    "encoder.layers.{n}.self_attention_norm.*": f"{_LAYER}attention.self_attn_layer_norm.*",
    "encoder.layers.{n}.ffn_norm.*": f"{_LAYER}LayerNorm.*",
    "encoder.final_norm.*": "roberta.encoder.LayerNorm.*",
}


@Layout.register
class XlmRobertaXl(XlmRoberta):
    """XLM-R XL's layout; everything else is XLM-R's."""

    name = "xlm-roberta-xl"
    names = replace(
        XlmRoberta.names,
        names={k: v for k, v in {**encoder_names("roberta."), **_NORMS}.items() if k != "encoder.embeddings.norm.*"},
    )
    model_types = ("xlm-roberta-xl",)
    model_class = "XLMRobertaXL"
    form: Mapping[str, Any] = {"layer_norm": "pre", "embedding_norm": "none"}
    constants: Mapping[str, Any] = {**XlmRoberta.constants, **form}
