"""The tables of all layouts; `fairseq_xl.checkpoints.layouts.state_dict_conversion` applies them.

=================== ======================================= ==============================================
layout              written by                              models
=================== ======================================= ==============================================
fairseq_roberta     fairseq's RobertaModel                  XLM-R, RoBERTa
fairseq_transformer fairseq's TransformerModel              VECO's released translation model, BART, mBART
xlm-roberta         transformers' XLMRoberta                XLM-R
bert                transformers' Bert                      mBERT
xlm                 transformers' XLM, XLM's own files      XLM
xlm_decoder         XLM's translation models                decoder of XLM
bart                transformers' Bart, MBart               BART; mBART-25 and mBART-50
roberta_decoder     transformers' XLMRobertaForCausalLM     decoder of an EncoderDecoderModel
bert_decoder        transformers' BertGenerationDecoder     the same, without the dense output layer
bert_encoder        XLMRobertaModel, BertGenerationEncoder  encoder of an EncoderDecoderModel
=================== ======================================= ==============================================
"""

from fairseq_xl.checkpoints.layouts.name_mapping import Names, Table, prefixed
from fairseq_xl.checkpoints.parameter_names import BIAS, LANGUAGES, POSITIONS, TOKENS

SEGMENTS = "encoder.embeddings.segments.weight"
DECODER_TOKENS, DECODER_BIAS, DECODER_LANGUAGES, DECODER_POSITIONS = (
    name.replace("encoder", "decoder", 1) for name in (TOKENS, BIAS, LANGUAGES, POSITIONS)
)

# --- fairseq ---------------------------------------------------------------------------------------------------


def _fairseq_attention(theirs: str) -> tuple[str, ...]:
    return tuple(f"layers.{{n}}.{theirs}.{part}_proj.*" for part in "qkv")


_FAIRSEQ_LAYER: Names = {
    "layers.{n}.self_attention.qkv.*": _fairseq_attention("self_attn"),
    "layers.{n}.self_attention.out.*": "layers.{n}.self_attn.out_proj.*",
    "layers.{n}.self_attention_norm.*": "layers.{n}.self_attn_layer_norm.*",
    "layers.{n}.ffn.up.*": "layers.{n}.fc1.*",
    "layers.{n}.ffn.down.*": "layers.{n}.fc2.*",
    "layers.{n}.ffn_norm.*": "layers.{n}.final_layer_norm.*",
}
_FAIRSEQ_CROSS_ATTENTION: Names = {
    "layers.{n}.cross_attention.query.*": "layers.{n}.encoder_attn.q_proj.*",
    "layers.{n}.cross_attention.key_value.*": _fairseq_attention("encoder_attn")[1:],
    "layers.{n}.cross_attention.out.*": "layers.{n}.encoder_attn.out_proj.*",
    "layers.{n}.cross_attention_norm.*": "layers.{n}.encoder_attn_layer_norm.*",
}
_FAIRSEQ_STEM: Names = {
    "embeddings.positions.weight": "embed_positions.weight",
    "embeddings.norm.*": "layernorm_embedding.*",
}
_LM_HEAD: Names = {BIAS: "lm_head.bias", "output.dense.*": "lm_head.dense.*", "output.norm.*": "lm_head.layer_norm.*"}


def _bart(prefix: str, shared: str) -> tuple[Names, Names]:
    """Rows of an encoder-decoder with fairseq's names, which BART and mBART keep, and those of final LayerNorms."""
    stacks = {
        **prefixed({**_FAIRSEQ_STEM, **_FAIRSEQ_LAYER}, "encoder.", f"{prefix}encoder."),
        **prefixed({**_FAIRSEQ_STEM, **_FAIRSEQ_LAYER, **_FAIRSEQ_CROSS_ATTENTION}, "decoder.", f"{prefix}decoder."),
    }
    norms = {f"{stack}.final_norm.*": f"{prefix}{stack}.layer_norm.*" for stack in ("encoder", "decoder")}
    return {TOKENS: shared, **stacks}, norms


_ROBERTA = "encoder.sentence_encoder."
_fairseq_stacks, _fairseq_norms = _bart("", "encoder.embed_tokens.weight")
_bart_stacks, _bart_norms = _bart("model.", "model.shared.weight")

# --- transformers ----------------------------------------------------------------------------------------------


def _bert_names(prefix: str, stack: str = "encoder.") -> Names:
    """Rows of the embeddings and layers of Bert, XLMRoberta and BertGeneration."""
    attention = f"{prefix}encoder.layer.{{n}}.attention."
    return {
        f"{stack}token_embeddings.table.weight": f"{prefix}embeddings.word_embeddings.weight",
        f"{stack}embeddings.positions.weight": f"{prefix}embeddings.position_embeddings.weight",
        f"{stack}embeddings.norm.*": f"{prefix}embeddings.LayerNorm.*",
        f"{stack}layers.{{n}}.self_attention.qkv.*": tuple(
            f"{attention}self.{part}.*" for part in ("query", "key", "value")
        ),
        f"{stack}layers.{{n}}.self_attention.out.*": f"{attention}output.dense.*",
        f"{stack}layers.{{n}}.self_attention_norm.*": f"{attention}output.LayerNorm.*",
        f"{stack}layers.{{n}}.ffn.up.*": f"{prefix}encoder.layer.{{n}}.intermediate.dense.*",
        f"{stack}layers.{{n}}.ffn.down.*": f"{prefix}encoder.layer.{{n}}.output.dense.*",
        f"{stack}layers.{{n}}.ffn_norm.*": f"{prefix}encoder.layer.{{n}}.output.LayerNorm.*",
    }


def _bert_cross_attention(prefix: str) -> Names:
    cross = f"{prefix}encoder.layer.{{n}}.crossattention."
    return {
        "decoder.layers.{n}.cross_attention.query.*": f"{cross}self.query.*",
        "decoder.layers.{n}.cross_attention.key_value.*": (f"{cross}self.key.*", f"{cross}self.value.*"),
        "decoder.layers.{n}.cross_attention.out.*": f"{cross}output.dense.*",
        "decoder.layers.{n}.cross_attention_norm.*": f"{cross}output.LayerNorm.*",
    }


_DECODER_HEAD: Names = {DECODER_BIAS: "lm_head.bias"}
_DENSE_DECODER_HEAD: Names = {
    "decoder.output.dense.*": "lm_head.dense.*",
    "decoder.output.norm.*": "lm_head.layer_norm.*",
}
_IGNORED = (r".*position_ids", r".*\bversion", r".*_float_tensor")


def _lm_ties(words: str) -> dict[str, str]:
    return {
        "lm_head.decoder.weight": f"{words}embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    }


# --- XLM -------------------------------------------------------------------------------------------------------


def _xlm(stack: str) -> Names:
    return {
        f"{stack}.token_embeddings.table.weight": "embeddings.weight",
        f"{stack}.embeddings.positions.weight": "position_embeddings.weight",
        f"{stack}.embeddings.norm.*": "layer_norm_emb.*",
        f"{stack}.layers.{{n}}.self_attention.qkv.*": tuple(f"attentions.{{n}}.{part}_lin.*" for part in "qkv"),
        f"{stack}.layers.{{n}}.self_attention.out.*": "attentions.{n}.out_lin.*",
        f"{stack}.layers.{{n}}.self_attention_norm.*": "layer_norm1.{n}.*",
        f"{stack}.layers.{{n}}.ffn.up.*": "ffns.{n}.lin1.*",
        f"{stack}.layers.{{n}}.ffn.down.*": "ffns.{n}.lin2.*",
        f"{stack}.layers.{{n}}.ffn_norm.*": "layer_norm2.{n}.*",
    }


def _xlm_options(stack: str) -> tuple[Names, ...]:
    return (
        {f"{stack}.embeddings.languages.weight": "lang_embeddings.weight"},
        {f"{stack}.token_embeddings.output_bias": "pred_layer.proj.bias"},
    )


_XLM_TIES = {"pred_layer.proj.weight": "embeddings.weight"}
_XLM_CROSS_ATTENTION: Names = {
    "decoder.layers.{n}.cross_attention.query.*": "encoder_attn.{n}.q_lin.*",
    "decoder.layers.{n}.cross_attention.key_value.*": (
        "encoder_attn.{n}.k_lin.*",
        "encoder_attn.{n}.v_lin.*",
    ),
    "decoder.layers.{n}.cross_attention.out.*": "encoder_attn.{n}.out_lin.*",
    "decoder.layers.{n}.cross_attention_norm.*": "layer_norm15.{n}.*",
}

TABLES = {
    "fairseq_roberta": Table(
        {
            TOKENS: f"{_ROBERTA}embed_tokens.weight",
            **prefixed({**_FAIRSEQ_STEM, **_FAIRSEQ_LAYER}, "encoder.", _ROBERTA),
        },
        (prefixed(_LM_HEAD, "", "encoder."),),
        {"encoder.lm_head.weight": f"{_ROBERTA}embed_tokens.weight"},
        _IGNORED,
    ),
    "fairseq_transformer": Table(
        _fairseq_stacks,
        (_fairseq_norms,),
        dict.fromkeys(
            ("decoder.embed_tokens.weight", "decoder.output_projection.weight"), "encoder.embed_tokens.weight"
        ),
        (*_IGNORED, r"encoder\.output_projection\.weight", r"classification_heads\..*"),
    ),
    "xlm-roberta": Table(
        _bert_names("roberta."),
        (_LM_HEAD, {SEGMENTS: "roberta.embeddings.token_type_embeddings.weight"}),
        _lm_ties("roberta."),
        (*_IGNORED, r"roberta\.pooler\.dense\..*"),
    ),
    "bert": Table(
        _bert_names("bert."),
        (
            {SEGMENTS: "bert.embeddings.token_type_embeddings.weight"},
            {
                BIAS: "cls.predictions.bias",
                "output.dense.*": "cls.predictions.transform.dense.*",
                "output.norm.*": "cls.predictions.transform.LayerNorm.*",
            },
            {"heads.nsp.0.*": "bert.pooler.dense.*"},
        ),
        {
            "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
            "cls.predictions.decoder.bias": "cls.predictions.bias",
        },
        (*_IGNORED, r"cls\.seq_relationship\..*"),
    ),
    "xlm": Table(_xlm("encoder"), _xlm_options("encoder"), _XLM_TIES, _IGNORED),
    "xlm_decoder": Table({**_xlm("decoder"), **_XLM_CROSS_ATTENTION}, _xlm_options("decoder"), _XLM_TIES, _IGNORED),
    "bart": Table(
        _bart_stacks,
        (_bart_norms, {BIAS: "final_logits_bias"}),
        dict.fromkeys(
            ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"),
            "model.shared.weight",
        ),
        _IGNORED,
    ),
    "bert_encoder": Table(_bert_names(""), (), {}, _IGNORED),
    "roberta_decoder": Table(
        {
            **_bert_names("roberta.", "decoder."),
            **_bert_cross_attention("roberta."),
            **_DECODER_HEAD,
            **_DENSE_DECODER_HEAD,
        },
        (),
        _lm_ties("roberta."),
        _IGNORED,
    ),
    "bert_decoder": Table(
        {**_bert_names("bert.", "decoder."), **_bert_cross_attention("bert."), **_DECODER_HEAD},
        (),
        _lm_ties("bert."),
        _IGNORED,
    ),
}
