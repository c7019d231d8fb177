"""XLM of transformers, and XLM's own files: NAME.pth of pre-training and of translation."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq_xl.checkpoints.layouts import base, published_vocabularies
from fairseq_xl.checkpoints.layouts.base import IGNORED, TOKENIZER, WORDS, Layout, Settings, has_pooler
from fairseq_xl.checkpoints.layouts.name_mapping import Names, State, Table
from fairseq_xl.checkpoints.layouts.plugin_checkpoint import Own
from fairseq_xl.checkpoints.layouts.published_files import as_settings, beside
from fairseq_xl.checkpoints.layouts.weight_checks import check_parameters, check_settings
from fairseq_xl.checkpoints.parameter_names import DECODER_BIAS, DECODER_TOKENS, SEGMENTS, TOKENS
from fairseq_xl.checkpoints.stacks import count_layers
from fairseq_xl.errors import UserError

#: entries of a .pth that are needed beside its weights and `params`
_ENTRIES = ("decoder", "dico_id2word", "dico_counts")


def stack_table(stack: str, cross_attention: Names) -> Table:
    """The names of XLM's encoder or decoder."""
    return Table(
        {
            f"{stack}.token_embeddings.table.weight": "embeddings.weight",
            f"{stack}.embeddings.positions.weight": "position_embeddings.weight",
            f"{stack}.embeddings.norm.*": "layer_norm_emb.*",
            f"{stack}.layers.{{n}}.self_attention.qkv.*": tuple(f"attentions.{{n}}.{part}_lin.*" for part in "qkv"),
            f"{stack}.layers.{{n}}.self_attention.out.*": "attentions.{n}.out_lin.*",
            f"{stack}.layers.{{n}}.self_attention_norm.*": "layer_norm1.{n}.*",
            f"{stack}.layers.{{n}}.ffn.up.*": "ffns.{n}.lin1.*",
            f"{stack}.layers.{{n}}.ffn.down.*": "ffns.{n}.lin2.*",
            f"{stack}.layers.{{n}}.ffn_norm.*": "layer_norm2.{n}.*",
            **cross_attention,
        },
        (
            {f"{stack}.embeddings.languages.weight": "lang_embeddings.weight"},
            {f"{stack}.token_embeddings.output_bias": "pred_layer.proj.bias"},
        ),
        {"pred_layer.proj.weight": "embeddings.weight"},
        IGNORED,
    )


@Layout.register
class Xlm(Layout):
    """XLM's layout, of encoders with a plain output layer, language embeddings or a classifier without pooler."""

    name = "xlm"
    names = stack_table("encoder", {})
    renames = ((r"^module\.", ""), (r"^transformer\.", ""))
    model_types = ("xlm",)
    typical_names = (r"(transformer\.)?attentions\.0\.q_lin\.weight",)
    model_class, encoder_prefix = "XLM", "transformer."
    constants: Mapping[str, Any] = {**Layout.constants, "layer_norm_eps": 1e-12}
    framing = "xlm"
    subwords = "xlm"
    vocabulary_files = (WORDS, TOKENIZER)
    architecture = "xl_xlm_base"
    config_entries: Mapping[str, str] = {
        **{"emb_dim": "embed_dim", "n_heads": "heads", "layer_norm_eps": "layer_norm_eps"},
        **{"dropout": "dropout", "attention_dropout": "attention_dropout"},
        "gelu_activation": "activation",
    }
    classifier_names = ("sequence_summary.summary.",)

    def settings(self, checkpoint: Settings) -> Settings:
        """`params`, and the entries with the words and the decoder."""
        entries = {name: checkpoint[name] for name in _ENTRIES if name in checkpoint}
        return check_settings(as_settings(checkpoint.get("params"))) | entries

    def to_ours(self, weights: State, settings: Settings) -> State:
        """The weights of the encoder, and of the decoder of a translation model."""
        state = super().to_ours(weights, settings)
        if "decoder" not in settings:
            return state
        try:
            decoder = XlmDecoder().to_ours(check_parameters(settings["decoder"]), {})
        except UserError as error:
            raise UserError(f"its decoder: {error}") from error
        if DECODER_BIAS not in decoder:
            raise UserError("its decoder: the weights have no output layer (pred_layer.proj)")
        if len(decoder[DECODER_TOKENS]) != len(state[TOKENS]):
            rows = f"{len(state[TOKENS])} rows of tokens in its encoder, {len(decoder[DECODER_TOKENS])} in its decoder"
            raise UserError(f"it has {rows}")
        return state | decoder

    def activation(self, activation: Any, state: State) -> str:
        return "gelu" if activation else "relu"

    def vocabulary(self, count: int, file: Path, settings: Settings) -> published_vocabularies.Vocabulary:
        """The words of vocab.json, or of the .pth itself."""
        if "model_type" not in settings:
            return published_vocabularies.from_xlm(count, settings.get("dico_id2word"), file)
        origin = beside(file, *self.vocabulary_files)
        read = published_vocabularies.from_xlm_words if origin.name == WORDS else published_vocabularies.from_pieces
        return read(count, origin)

    def has_form(self, model: Own, head: str | None) -> bool:
        without_pooler = head == base.SEQUENCES and not has_pooler(model)
        has_form = bool(model.languages) or without_pooler or model.options["output_form"] != "dense"
        return not model.has_decoder and SEGMENTS not in model.state and has_form

    def obstacles(self, model: Own, head: str | None) -> dict[str, bool]:
        """XLM has a plain output layer, no pooler, and a feed-forward size of 4 times the embeddings'."""
        options, languages = model.options, bool(model.languages)
        dense, with_pooler = options["output_form"] == "dense", head == base.SEQUENCES and has_pooler(model)
        ffn = f"--ffn-dim {options['ffn_dim']} in XLM's form, where it is 4 times --embed-dim"
        if head == base.SEQUENCES and dense and not languages:
            ffn = f"a classifier without pooler and {ffn} (fine-tune with --pooler, or --no-head)"
        return super().obstacles(model, head) | {
            # without its output layer the encoder is XLM's
            "language embeddings together with a dense output layer (--lang XX exports the model for one language)": (
                languages and dense and head is None
            ),
            "language embeddings together with a pooler": languages and with_pooler,
            "a plain output layer together with a pooler": not languages and with_pooler,
            ffn: options["ffn_dim"] != 4 * options["embed_dim"],
        }

    def to_theirs(self, state: State) -> State:
        """The names of transformers; XLM's own files lack the prefix."""
        return {
            name if name.startswith("pred_layer.") else f"{self.encoder_prefix}{name}": value
            for name, value in super().to_theirs(state).items()
        }

    def config(self, model: Own, state: State, stack: str = "encoder") -> Settings:
        languages, mask = model.languages, model.dictionary.mask_index
        return super().config(model, state, stack) | {
            **{"n_layers": count_layers(state, stack), "gelu_activation": model.options["activation"] == "gelu"},
            **{"is_encoder": True, "causal": model.is_causal},
            **{"use_lang_emb": bool(languages), "n_langs": max(len(languages), 1)},
            "lang2id": {language: row for row, language in enumerate(languages)},
            "id2lang": {str(row): language for row, language in enumerate(languages)},
            **{"bos_index": base.BOS, "pad_index": base.PAD, "eos_index": base.EOS, "unk_index": base.UNK},
            **{"mask_index": mask, "mask_token_id": mask},
        }

    def class_name(self, head: str | None) -> str:
        if head is None:
            return "XLMWithLMHeadModel"
        return super().class_name(head) + ("Simple" if head == base.QUESTIONS else "")

    def head_config(self, model: Own, head: str) -> Settings:
        """The classifier is a projection of the first token."""
        settings = super().head_config(model, head)
        if head == base.SEQUENCES:
            settings |= {"summary_type": "first", "summary_use_proj": True, "summary_activation": None}
            settings |= {"summary_proj_to_labels": True, "summary_first_dropout": model.head_dropout}
        return settings


class XlmDecoder(Layout):
    """The decoder of XLM's translation models."""

    names = stack_table(
        "decoder",
        {
            "decoder.layers.{n}.cross_attention.query.*": "encoder_attn.{n}.q_lin.*",
            "decoder.layers.{n}.cross_attention.key_value.*": ("encoder_attn.{n}.k_lin.*", "encoder_attn.{n}.v_lin.*"),
            "decoder.layers.{n}.cross_attention.out.*": "encoder_attn.{n}.out_lin.*",
            "decoder.layers.{n}.cross_attention_norm.*": "layer_norm15.{n}.*",
        },
    )
    renames = Xlm.renames
