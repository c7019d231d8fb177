"""fairseq's RobertaModel: XLM-R and RoBERTa."""

from collections.abc import Mapping
from typing import Any

from fairseq_xl.checkpoints.layouts.base import DICTIONARY, IGNORED, PIECES, TORCH_EPS, Layout, Settings
from fairseq_xl.checkpoints.layouts.fairseq_transformer import LAYER, STEM
from fairseq_xl.checkpoints.layouts.name_mapping import State, Table, prefixed
from fairseq_xl.checkpoints.layouts.plugin_checkpoint import Own
from fairseq_xl.checkpoints.layouts.xlm_roberta import OUTPUT, XlmRoberta
from fairseq_xl.checkpoints.parameter_names import POSITIONS, TOKENS
from fairseq_xl.checkpoints.stacks import count_layers

_ENCODER = "encoder.sentence_encoder."


@Layout.register
class FairseqRoberta(Layout):
    """Layout of fairseq's RobertaModel. Its `config` is the configuration of fairseq's model."""

    name = "fairseq_roberta"
    names = Table(
        {TOKENS: f"{_ENCODER}embed_tokens.weight", **prefixed({**STEM, **LAYER}, "encoder.", _ENCODER)},
        (prefixed(OUTPUT, "", "encoder."),),
        {"encoder.lm_head.weight": f"{_ENCODER}embed_tokens.weight"},
        IGNORED,
    )
    renames = ((r"^decoder\.", "encoder."), (r"\bemb_layer_norm\.", "layernorm_embedding."))
    typical_names = (r".*\.sentence_encoder\..*",)
    constants: Mapping[str, Any] = {**Layout.constants, "layer_norm_eps": TORCH_EPS}
    shares_activation = True
    position_offset = 2
    config_entries: Mapping[str, str] = {
        **{"encoder_embed_dim": "embed_dim", "encoder_ffn_embed_dim": "ffn_dim", "encoder_attention_heads": "heads"},
        **{"activation_fn": "activation", "dropout": "dropout"},
        **{name: name for name in ("attention_dropout", "activation_dropout")},
    }
    vocabulary_files = (DICTIONARY, PIECES)

    def obstacles(self, model: Own, head: str | None) -> dict[str, bool]:
        """{reason why fairseq's RobertaModel does not compute a model of ours: whether it applies}."""
        xlm_roberta, options = XlmRoberta(), model.options
        has_form = xlm_roberta.has_form(model, None) and not any(xlm_roberta.obstacles(model, None).values())
        eps = options["layer_norm_eps"]
        return {
            "it has a decoder": model.has_decoder,
            "it is not of XLM-R's form": not has_form,
            f"--layer-norm-eps is {eps}, not {TORCH_EPS}": eps != TORCH_EPS,
            "its activation is relu, not gelu": options["activation"] != "gelu",
            f"its framing is {options['framing']}, not xl": options["framing"] != "xl",
        }

    def config(self, model: Own, state: State, stack: str = "encoder") -> Settings:
        config: Settings = {entry: model.options[name] for entry, name in self.config_entries.items()}
        config |= {"_name": "roberta_base", "arch": "roberta_base", "encoder_layers": count_layers(state, stack)}
        longest = len(state[POSITIONS]) - self.position_offset
        return config | {"max_positions": longest, "tokens_per_sample": longest}
