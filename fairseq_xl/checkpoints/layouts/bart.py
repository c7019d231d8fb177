"""BART and mBART of transformers, which keep fairseq's names. V symbols, C channels."""

import logging
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairseq_xl.checkpoints.layouts import base, published_vocabularies
from fairseq_xl.checkpoints.layouts.base import IGNORED, TORCH_EPS, Counterpart, Layout, Settings
from fairseq_xl.checkpoints.layouts.fairseq_transformer import FairseqTransformer, final_norms, stack_names
from fairseq_xl.checkpoints.layouts.name_mapping import State, Table
from fairseq_xl.checkpoints.layouts.plugin_checkpoint import Own
from fairseq_xl.checkpoints.layouts.published_files import beside
from fairseq_xl.checkpoints.parameter_names import (
    BIAS,
    DECODER_BIAS,
    DECODER_POSITIONS,
    DECODER_TOKENS,
    POSITIONS,
    TOKENS,
)
from fairseq_xl.checkpoints.stacks import count_layers

logger = logging.getLogger(__name__)

_BIAS = "final_logits_bias"
#: named in config.json as the models of facebook have them; converters of other programs read them
_POST_LN = {"normalize_before": False, "add_final_layer_norm": False}
_PRE_LN = {"normalize_before": True, "add_final_layer_norm": True}
_SOURCE, _TARGET = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
_SHARED = "model.shared.weight"


@Layout.register
class Bart(FairseqTransformer):
    """Layout of BART (post-LN) and mBART (pre-LN): a plain output layer, one or two tables of tokens.

    The output bias is (1, V). LayerNorm's epsilon is 1e-5 there. Ours may be smaller: token and position embeddings are
    then multiplied by the square root of C, which changes nothing else in front of a LayerNorm; the variances of
    hidden states are near 1.
    """

    name = "bart"
    names = Table(
        {TOKENS: _SHARED, **stack_names("model.")},
        (final_norms("model."), {BIAS: _BIAS}),
        dict.fromkeys((_SOURCE, _TARGET, "lm_head.weight"), _SHARED),
        IGNORED,
    )
    separate = replace(
        names,
        names={TOKENS: _SOURCE, DECODER_TOKENS: _TARGET, **stack_names("model.")},
        optional=(final_norms("model."), {DECODER_BIAS: _BIAS}),
        ties={_SHARED: _SOURCE, "lm_head.weight": _TARGET},
    )
    renames = ((r"^(?=(shared|encoder|decoder)\.)", "model."),)
    model_types: tuple[str, ...] = ("mbart", "bart")
    typical_names = ()
    config_entries: Mapping[str, str] = {
        **{"d_model": "embed_dim", "activation_function": "activation"},
        **{f"{stack}_attention_heads": "heads" for stack in ("encoder", "decoder")},
        **{f"{stack}_ffn_dim": "ffn_dim" for stack in ("encoder", "decoder")},
        **{name: name for name in ("dropout", "attention_dropout", "activation_dropout")},
    }
    model_classes: Mapping[str, str] = {"mbart": "MBart", "bart": "Bart"}  # by model_type
    form: Mapping[str, Any] = {"embedding_norm": "added"}
    ffn_setting = "ffn_dim"
    expressed = (*FairseqTransformer.expressed, "layer_norm_eps")

    def table(self, settings: Settings) -> Table:
        return self.separate if settings.get("tie_word_embeddings") is False else self.names

    def to_ours(self, weights: State, settings: Settings) -> State:
        bias = {_BIAS: weights[_BIAS].reshape(-1)} if _BIAS in weights else {}
        return super().to_ours(weights | bias, settings)

    def default_framing(self, settings: Settings) -> str:
        return "xl" if settings.get("model_type") == "bart" else self.framing

    def is_scaled(self, settings: Settings, pre: bool) -> bool:
        return bool(settings.get("scale_embedding", False))

    def vocabulary(self, count: int, file: Path, settings: Settings) -> published_vocabularies.Vocabulary:
        if settings.get("model_type") == "bart":
            return Layout.vocabulary(self, count, file, settings)
        return published_vocabularies.from_mbart(count, beside(file, base.PIECES, base.TOKENIZER))

    def has_form(self, model: Own, head: str | None) -> bool:
        return model.has_decoder and model.options["output_form"] != "dense" and super().has_form(model, head)

    def obstacles(self, model: Own, head: str | None) -> dict[str, bool]:
        eps = model.options["layer_norm_eps"]
        return super().obstacles(model, head) | {f"--layer-norm-eps {eps}, above {TORCH_EPS}": eps > TORCH_EPS}

    def to_theirs(self, state: State) -> State:
        table = self.separate if DECODER_TOKENS in state else self.names
        weights = table.to_theirs(dict(state))
        if table is self.separate:  # a file has tables with the same values twice unless the model ties them
            weights |= {name: weights[name].clone() for name in table.ties}
        return weights | {_BIAS: weights[_BIAS][None]}

    def config(self, model: Own, state: State, stack: str = "encoder") -> Settings:
        config, is_pre = super().config(model, state, stack), model.options["layer_norm"] == "pre"
        config |= {f"{name}_layers": count_layers(state, name) for name in ("encoder", "decoder")}
        config |= _PRE_LN if is_pre else _POST_LN
        config["max_position_embeddings"] -= self.position_offset
        bias = state[DECODER_BIAS if DECODER_TOKENS in state else BIAS]
        return config | {
            **{"model_type": "mbart" if is_pre else "bart", "is_encoder_decoder": True},
            **{"tie_word_embeddings": DECODER_TOKENS not in state, "add_bias_logits": bool(bias.any())},
            **{"normalize_embedding": True, "static_position_embeddings": False},
        }

    def export(self, model: Own, head: str | None) -> Counterpart:
        state = {name: value for name, value in self.positions(model).items() if not name.startswith("heads.")}
        left_out = base.part_names(model.state.keys() - state.keys())
        is_scaled = model.options["embedding_scale"] == "sqrt"
        if model.options["layer_norm_eps"] < TORCH_EPS:
            logger.info("%s: LayerNorm's epsilon becomes %s, the only one of BART", model.path, TORCH_EPS)
            if not is_scaled:
                scale, is_scaled = math.sqrt(model.options["embed_dim"]), True
                state |= {name: state[name] * scale for name in (POSITIONS, DECODER_POSITIONS)}
        config = self.config(model, state) | {"scale_embedding": is_scaled}
        config["architectures"] = [f"{self.model_classes[config['model_type']]}ForConditionalGeneration"]
        return Counterpart(self, config, self.to_theirs(state), left_out)
