"""fairseq's TransformerModel: VECO's released translation model, BART and mBART."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq_xl.checkpoints.layouts import published_vocabularies
from fairseq_xl.checkpoints.layouts.base import DICTIONARY, IGNORED, TORCH_EPS, Layout, Settings
from fairseq_xl.checkpoints.layouts.name_mapping import Names, State, Table, prefixed
from fairseq_xl.checkpoints.layouts.published_files import beside
from fairseq_xl.checkpoints.parameter_names import BIAS, DECODER_BIAS, DECODER_TOKENS, TOKENS
from fairseq_xl.errors import UserError, quoted

STEM: Names = {"embeddings.positions.weight": "embed_positions.weight", "embeddings.norm.*": "layernorm_embedding.*"}
LAYER: Names = {
    "layers.{n}.self_attention.qkv.*": tuple(f"layers.{{n}}.self_attn.{part}_proj.*" for part in "qkv"),
    "layers.{n}.self_attention.out.*": "layers.{n}.self_attn.out_proj.*",
    "layers.{n}.self_attention_norm.*": "layers.{n}.self_attn_layer_norm.*",
    "layers.{n}.ffn.up.*": "layers.{n}.fc1.*",
    "layers.{n}.ffn.down.*": "layers.{n}.fc2.*",
    "layers.{n}.ffn_norm.*": "layers.{n}.final_layer_norm.*",
}
_CROSS_ATTENTION: Names = {
    "layers.{n}.cross_attention.query.*": "layers.{n}.encoder_attn.q_proj.*",
    "layers.{n}.cross_attention.key_value.*": tuple(f"layers.{{n}}.encoder_attn.{part}_proj.*" for part in "kv"),
    "layers.{n}.cross_attention.out.*": "layers.{n}.encoder_attn.out_proj.*",
    "layers.{n}.cross_attention_norm.*": "layers.{n}.encoder_attn_layer_norm.*",
}


def stack_names(prefix: str) -> Names:
    """Rows of encoder and decoder with fairseq's names, which BART and mBART keep, without token embeddings."""
    return {
        **prefixed({**STEM, **LAYER}, "encoder.", f"{prefix}encoder."),
        **prefixed({**STEM, **LAYER, **_CROSS_ATTENTION}, "decoder.", f"{prefix}decoder."),
    }


def final_norms(prefix: str) -> Names:
    """Rows of the LayerNorms after the last layers, which pre-LN models have."""
    return {f"{stack}.final_norm.*": f"{prefix}{stack}.layer_norm.*" for stack in ("encoder", "decoder")}


@Layout.register
class FairseqTransformer(Layout):
    """Layout of fairseq's TransformerModel. An output bias of zeros is added if the file has none."""

    name = "fairseq_transformer"
    names = Table(
        {TOKENS: "encoder.embed_tokens.weight", **stack_names("")},
        (final_norms(""),),
        dict.fromkeys(
            ("decoder.embed_tokens.weight", "decoder.output_projection.weight"), "encoder.embed_tokens.weight"
        ),
        (*IGNORED, r"encoder\.output_projection\.weight", r"classification_heads\..*"),
    )
    typical_names: tuple[str, ...] = (
        r"encoder\.embed_tokens\.weight",
        r"decoder\.layers\.0\.encoder_attn\.q_proj\.weight",
    )
    config_entries: Mapping[str, str] = {"encoder_attention_heads": "heads", "activation_fn": "activation"}
    ffn_setting = "ffn_embed_dim"  # behind encoder_ and decoder_
    constants: Mapping[str, Any] = {"layer_norm_eps": TORCH_EPS}
    expressed = (*Layout.expressed, "layer_norm", "embedding_scale")
    position_offset = 2
    framing = "mbart"

    def to_ours(self, weights: State, settings: Settings) -> State:
        state = super().to_ours(weights, settings)
        bias = DECODER_BIAS if DECODER_TOKENS in state else BIAS
        state.setdefault(bias, state[TOKENS].new_zeros(len(state[TOKENS])))
        return state

    def options(self, settings: Settings, state: State) -> Settings:
        options = super().options(settings, state)
        for name in ("attention_heads", self.ffn_setting):
            sides = [settings.get(f"{stack}_{name}") for stack in ("encoder", "decoder")]
            if None not in sides and sides[0] != sides[1]:
                raise UserError(f"its encoder and decoder differ in {name}: {sides[0]} and {sides[1]}")
        pre = "encoder.final_norm.weight" in state
        return options | {
            "layer_norm": "pre" if pre else "post",
            "embedding_scale": "sqrt" if self.is_scaled(settings, pre) else "none",
            "share_embeddings": DECODER_TOKENS not in state,
            "output_form": "plain",
        }

    def is_scaled(self, settings: Settings, pre: bool) -> bool:
        """Whether token embeddings are scaled; raises `UserError` for other LayerNorms than those of the weights."""
        before = [bool(settings.get(f"{stack}_normalize_before", False)) for stack in ("encoder", "decoder")]
        if before != [pre, pre]:
            raise UserError(
                "its settings and weights differ: encoder_normalize_before and decoder_normalize_before are "
                f"{before[0]} and {before[1]}, and it has {'' if pre else 'no '}LayerNorms after the last layers"
            )
        return not settings.get("no_scale_embedding", False)

    def vocabulary(self, count: int, file: Path, settings: Settings) -> published_vocabularies.Vocabulary:
        """The symbols of dict.txt, and the languages of the setting `langs`."""
        langs = settings.get("langs") or ""
        if not isinstance(langs, str):
            raise UserError(f"its 'langs' is {quoted(langs)}, expected language codes separated by commas")
        codes = [code for code in langs.split(",") if code]
        return published_vocabularies.from_fairseq_translation(count, beside(file, DICTIONARY), codes)

    def to_theirs(self, state: State) -> State:
        """Leaves out an output bias of zeros; raises `UserError` for another one, which fairseq does not have."""
        has_bias = state[BIAS].is_meta or bool(state[BIAS].any())
        return super().to_theirs({name: value for name, value in state.items() if has_bias or name != BIAS})
