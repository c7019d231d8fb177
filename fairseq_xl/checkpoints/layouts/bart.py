"""BART and mBART of transformers, which keep fairseq's names."""

from collections.abc import Mapping
from pathlib import Path

from fairseq_xl.checkpoints.layouts import base, published_vocabularies
from fairseq_xl.checkpoints.layouts.base import IGNORED, TORCH_EPS, Counterpart, Layout, Settings
from fairseq_xl.checkpoints.layouts.fairseq_transformer import FairseqTransformer, final_norms, stack_names
from fairseq_xl.checkpoints.layouts.name_mapping import State, Table
from fairseq_xl.checkpoints.layouts.plugin_checkpoint import Own
from fairseq_xl.checkpoints.layouts.published_files import beside
from fairseq_xl.checkpoints.parameter_names import BIAS, DECODER_TOKENS, TOKENS
from fairseq_xl.checkpoints.stacks import count_layers

_BIAS = "final_logits_bias"


@Layout.register
class Bart(FairseqTransformer):
    """Layout of BART (post-LN) and mBART (pre-LN): a plain output layer, one table of tokens. Its bias is (1, V)."""

    name = "bart"
    names = Table(
        {TOKENS: "model.shared.weight", **stack_names("model.")},
        (final_norms("model."), {BIAS: _BIAS}),
        dict.fromkeys(
            ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"),
            "model.shared.weight",
        ),
        IGNORED,
    )
    renames = ((r"^(?=(shared|encoder|decoder)\.)", "model."),)
    model_types = ("mbart", "bart")
    typical_names = ()
    config_entries: Mapping[str, str] = {
        **{"d_model": "embed_dim", "activation_function": "activation"},
        **{f"{stack}_attention_heads": "heads" for stack in ("encoder", "decoder")},
        **{f"{stack}_ffn_dim": "ffn_dim" for stack in ("encoder", "decoder")},
        **{name: name for name in ("dropout", "attention_dropout", "activation_dropout")},
    }
    ffn_setting = "ffn_dim"

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
        options = model.options
        has_eps = options["layer_norm"] == "pre" or options["layer_norm_eps"] == TORCH_EPS
        is_plain = model.has_decoder and options["output_form"] != "dense"
        return is_plain and DECODER_TOKENS not in model.state and has_eps

    def to_theirs(self, state: State) -> State:
        weights = Layout.to_theirs(self, state)
        return weights | {_BIAS: weights[_BIAS][None]}

    def config(self, model: Own, state: State, stack: str = "encoder") -> Settings:
        config, options = super().config(model, state, stack), model.options
        config |= {f"{name}_layers": count_layers(state, name) for name in ("encoder", "decoder")}
        config["max_position_embeddings"] -= self.position_offset
        config["model_type"] = "mbart" if options["layer_norm"] == "pre" else "bart"
        config["scale_embedding"] = options["embedding_scale"] == "sqrt"
        return config | {"is_encoder_decoder": True, "tie_word_embeddings": True}

    def export(self, model: Own, head: str | None) -> Counterpart:
        state = {name: value for name, value in self.positions(model).items() if not name.startswith("heads.")}
        config = self.config(model, state)
        name = {"mbart": "MBart", "bart": "Bart"}[config["model_type"]]
        config["architectures"] = [f"{name}ForConditionalGeneration"]
        return Counterpart(self, config, self.to_theirs(state), base.part_names(model.state.keys() - state.keys()))
