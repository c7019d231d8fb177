"""DistilBERT of transformers (Sanh et al. 2019) as a checkpoint layout: BERT without token types, by other names."""

from collections.abc import Mapping
from typing import Any

from fairseq_xl.checkpoints.layouts.base import QUESTIONS, SEQUENCES, Layout, Settings, has_pooler
from fairseq_xl.checkpoints.layouts.bert import Bert
from fairseq_xl.checkpoints.layouts.name_mapping import State, Table
from fairseq_xl.checkpoints.layouts.plugin_checkpoint import Own
from fairseq_xl.checkpoints.parameter_names import BIAS, POSITIONS, SEGMENTS, TOKENS
from fairseq_xl.checkpoints.stacks import count_layers

LAYER = "distilbert.transformer.layer.{n}."


@Layout.register
class DistilBert(Bert):
    """DistilBERT's layout, of encoders with BERT's framing, a dense output layer and no segment embeddings."""

    name = "distilbert"
    names = Table(
        {
            TOKENS: "distilbert.embeddings.word_embeddings.weight",
            POSITIONS: "distilbert.embeddings.position_embeddings.weight",
            "encoder.embeddings.norm.*": "distilbert.embeddings.LayerNorm.*",
            "encoder.layers.{n}.self_attention.qkv.*": tuple(f"{LAYER}attention.{part}_lin.*" for part in "qkv"),
            "encoder.layers.{n}.self_attention.out.*": f"{LAYER}attention.out_lin.*",
            "encoder.layers.{n}.self_attention_norm.*": f"{LAYER}sa_layer_norm.*",
            "encoder.layers.{n}.ffn.up.*": f"{LAYER}ffn.lin1.*",
            "encoder.layers.{n}.ffn.down.*": f"{LAYER}ffn.lin2.*",
            "encoder.layers.{n}.ffn_norm.*": f"{LAYER}output_layer_norm.*",
        },
        ({BIAS: "vocab_projector.bias", "output.dense.*": "vocab_transform.*", "output.norm.*": "vocab_layer_norm.*"},),
        {"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
    )
    renames = ((r"^(?=(embeddings|transformer)\.)", "distilbert."),)
    ignored_heads = r"(pre_classifier|classifier|qa_outputs)\."
    model_types = ("distilbert",)
    model_class, encoder_prefix = "DistilBert", "distilbert."
    classifier_names = ("pre_classifier.", "classifier.")
    pooler_activation = "relu"
    dropout_entries: Mapping[str, str] = {SEQUENCES: "seq_classif_dropout", QUESTIONS: "qa_dropout"}
    constants: Mapping[str, Any] = {**Layout.constants, "layer_norm_eps": 1e-12}
    config_entries: Mapping[str, str] = {
        **{"dim": "embed_dim", "hidden_dim": "ffn_dim", "n_heads": "heads", "activation": "activation"},
        **{"dropout": "dropout", "attention_dropout": "attention_dropout"},
    }

    def has_form(self, model: Own, head: str | None) -> bool:
        options = model.options
        has_form = options["framing"] == "bert" and options["output_form"] == "dense" and not options["position_offset"]
        has_form &= not model.has_decoder and SEGMENTS not in model.state and not model.languages
        has_relu = options.get("pooler_activation") == self.pooler_activation
        return has_form and (head != SEQUENCES or (has_pooler(model) and has_relu))

    def obstacles(self, model: Own, head: str | None) -> dict[str, bool]:
        return Layout.obstacles(self, model, head) | {
            "causal attention in DistilBERT's form": model.is_causal,
            "relu in DistilBERT's form": model.options["activation"] == "relu" and head is None,
        }

    def config(self, model: Own, state: State, stack: str = "encoder") -> Settings:
        return Layout.config(self, model, state) | {"n_layers": count_layers(state, stack)}
