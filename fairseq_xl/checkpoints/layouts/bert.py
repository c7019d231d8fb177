"""BERT of transformers: mBERT. Other layouts of encoders of transformers are deltas on it."""

from collections.abc import Mapping
from pathlib import Path

from fairseq_xl.checkpoints.layouts import base, published_vocabularies
from fairseq_xl.checkpoints.layouts.base import IGNORED, SEQUENCES, Layout, Settings, has_pooler
from fairseq_xl.checkpoints.layouts.name_mapping import Names, State, Table
from fairseq_xl.checkpoints.layouts.plugin_checkpoint import Own
from fairseq_xl.checkpoints.layouts.published_files import beside
from fairseq_xl.checkpoints.parameter_names import BIAS, SEGMENTS
from fairseq_xl.checkpoints.stacks import count_layers


def encoder_names(prefix: str, stack: str = "encoder.") -> Names:
    """Rows of the embeddings and layers of Bert and XLMRoberta."""
    layer = f"{prefix}encoder.layer.{{n}}."
    return {
        f"{stack}token_embeddings.table.weight": f"{prefix}embeddings.word_embeddings.weight",
        f"{stack}embeddings.positions.weight": f"{prefix}embeddings.position_embeddings.weight",
        f"{stack}embeddings.norm.*": f"{prefix}embeddings.LayerNorm.*",
        f"{stack}layers.{{n}}.self_attention.qkv.*": tuple(
            f"{layer}attention.self.{part}.*" for part in ("query", "key", "value")
        ),
        f"{stack}layers.{{n}}.self_attention.out.*": f"{layer}attention.output.dense.*",
        f"{stack}layers.{{n}}.self_attention_norm.*": f"{layer}attention.output.LayerNorm.*",
        f"{stack}layers.{{n}}.ffn.up.*": f"{layer}intermediate.dense.*",
        f"{stack}layers.{{n}}.ffn.down.*": f"{layer}output.dense.*",
        f"{stack}layers.{{n}}.ffn_norm.*": f"{layer}output.LayerNorm.*",
    }


class BertStack(Layout):
    """The common part of BERT and XLM-R, which may be a stack of an EncoderDecoderModel."""

    token_types = 0  # in config.json; 0: it has no such setting

    config_entries: Mapping[str, str] = {
        **{"hidden_size": "embed_dim", "intermediate_size": "ffn_dim", "num_attention_heads": "heads"},
        **{"hidden_act": "activation", "layer_norm_eps": "layer_norm_eps"},
        **{"hidden_dropout_prob": "dropout", "attention_probs_dropout_prob": "attention_dropout"},
    }

    def config(self, model: Own, state: State, stack: str = "encoder") -> Settings:
        config = super().config(model, state, stack)
        config |= {"num_hidden_layers": count_layers(state, stack), "tie_word_embeddings": True}
        config["position_embedding_type"] = "absolute"  # read by CTranslate2
        if self.token_types:
            config["type_vocab_size"] = self.token_types
        return config | ({"is_decoder": True, "add_cross_attention": True} if stack == "decoder" else {})


@Layout.register
class Bert(BertStack):
    """BERT's layout, of encoders with segment embeddings. The pooler is that of next-sentence prediction."""

    name = "bert"
    names = Table(
        encoder_names("bert."),
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
        (*IGNORED, r"cls\.seq_relationship\..*"),
    )
    renames = ((r"^(?=(embeddings|encoder|pooler)\.)", "bert."),)
    model_types = ("bert",)
    model_class, encoder_prefix = "Bert", "bert."
    shares_activation = True
    framing = "bert"
    subwords = "wordpiece"
    architecture = "xl_bert_base"
    classifier_names = ("bert.pooler.dense.", "classifier.")
    token_types = 2

    def vocabulary(self, count: int, file: Path, settings: Settings) -> published_vocabularies.Vocabulary:
        return published_vocabularies.from_bert(count, beside(file, base.WORDPIECES, base.TOKENIZER, base.PIECES))

    def has_form(self, model: Own, head: str | None) -> bool:
        return not model.has_decoder and SEGMENTS in model.state

    def obstacles(self, model: Own, head: str | None) -> dict[str, bool]:
        relu = model.options["activation"] == "relu" and head is None
        without_pooler = head == SEQUENCES and not has_pooler(model)
        return super().obstacles(model, head) | {
            "segment embeddings together with language embeddings": bool(model.languages),
            "segment embeddings together with a plain output layer": model.options["output_form"] != "dense",
            "relu in the layers and gelu in the output layer of BERT's form": relu,
            "segment embeddings and a classifier without pooler (fine-tune with --pooler)": without_pooler,
        }
