"""Maps models of this package to models of transformers that compute the same.

========================================================= ===================================================
our model                                                 counterpart
========================================================= ===================================================
XLM-R's form: no language embeddings, dense output        XLMRoberta
XLM's form: plain output, language embeddings or none     XLM
BERT's form: segment embeddings, dense output             Bert
translation, xDAE: pre-LN, plain output                   MBart
translation, xDAE: post-LN, plain output, epsilon 1e-5    Bart
the same with another epsilon or tables of their own      EncoderDecoderModel of BertGeneration
translation, xDAE in XLM-R's form                         EncoderDecoderModel of XLMRoberta
========================================================= ===================================================

Everything else is refused with the reason. C channels.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from fairseq_xl.checkpoints.layouts.layout_tables import (
    DECODER_BIAS,
    DECODER_POSITIONS,
    DECODER_TOKENS,
    SEGMENTS,
)
from fairseq_xl.checkpoints.layouts.model_settings import OFFSETS, OURS, TORCH_EPS, to_config
from fairseq_xl.checkpoints.layouts.name_mapping import State
from fairseq_xl.checkpoints.layouts.plugin_checkpoint import Own, with_offset
from fairseq_xl.checkpoints.layouts.state_dict_conversion import to_theirs
from fairseq_xl.checkpoints.parameter_names import BIAS, POSITIONS, TOKENS
from fairseq_xl.checkpoints.stacks import count_layers
from fairseq_xl.errors import UserError

logger = logging.getLogger(__name__)

Config = dict[str, Any]

#: task type -> suffix of the class name in transformers
HEADS = {
    "classification": "SequenceClassification",
    "tagging": "TokenClassification",
    "question_answering": "QuestionAnswering",
}
_CLASSES = {"xlm-roberta": "XLMRoberta", "xlm": "XLM", "bert": "Bert"}
_PREFIXES = {"xlm-roberta": "roberta", "bert": "bert"}
_NUMBER = "heads.{}.1."  # dropout, linear layer
_POOLED = ("heads.classification.pooler.", "heads.classification.output.")


@dataclass(frozen=True)
class Counterpart:
    """A model of transformers.

    Attributes:
        layout: its layout, a key of `tables.TABLES`, or ``encoder-decoder``.
        config: its config.json.
        weights: its parameters by their names there.
        left_out: parts of our model that it does not have and that change none of its outputs.
    """

    layout: str
    config: Config
    weights: State
    left_out: list[str] = field(default_factory=list)


def counterpart(own: Own, head: bool = True) -> Counterpart:
    """The model of transformers that computes what a model of ours computes.

    Args:
        own: the model.
        head: whether the head that it was fine-tuned with is part of it; False: the encoder with its output layer.

    Raises `UserError` with the reason for a model without counterpart.
    """
    found = _encoder_decoder(own) if own.has_decoder else _encoder(own, own.head if head else None)
    return replace(found, config=found.config | {OURS: {"framing": own.options["framing"]}})


# --- encoders --------------------------------------------------------------------------------------------------


def encoder_layout(own: Own, head: str | None = None) -> str:
    """The layout of an encoder: xlm-roberta, bert or xlm; raises `UserError` with the reason if none fits."""
    options = own.options
    _refuse(own, bool(options.get("adapters")), "adapters")
    _refuse(own, options["layer_norm"] == "pre", "pre-LN layers in an encoder of this kind")
    _refuse(own, options["embedding_scale"] == "sqrt", "scaled token embeddings in an encoder")
    dense, segments = options["output_form"] == "dense", SEGMENTS in own.state
    if segments:
        _refuse(own, bool(own.languages), "segment embeddings together with language embeddings")
        _refuse(own, not dense, "segment embeddings together with a plain output layer")
        relu = own.options["activation"] == "relu" and head is None
        _refuse(own, relu, "relu in the layers and gelu in the output layer of BERT's form")
        _refuse(
            own,
            head == "classification" and not _has_pooler(own),
            "segment embeddings and a classifier without pooler (fine-tune with --pooler)",
        )
        return "bert"
    layout = _form_of(own, head)
    _refuse(own, own.is_causal and layout != "xlm", "causal attention in an encoder of XLM-R's form")
    reason = f"--ffn-dim {own.options['ffn_dim']} in XLM's form, where it is 4 times --embed-dim"
    if head == "classification" and own.options["output_form"] == "dense" and not own.languages:
        reason = f"a classifier without pooler and {reason} (fine-tune with --pooler, or --no-head)"
    _refuse(own, layout == "xlm" and own.options["ffn_dim"] != 4 * own.options["embed_dim"], reason)
    return layout


def _form_of(own: Own, head: str | None) -> str:
    """The layout of an encoder without segment embeddings: xlm-roberta or xlm."""
    dense = own.options["output_form"] == "dense"
    if own.languages:
        # without its output layer the encoder is XLM's
        _refuse(
            own,
            dense and head is None,
            "language embeddings together with a dense output layer (--lang XX exports the model for one language)",
        )
        _refuse(own, head == "classification" and _has_pooler(own), "language embeddings together with a pooler")
        return "xlm"
    if head == "classification" and not _has_pooler(own):
        return "xlm"  # XLM-R's classifier has a layer more
    return "xlm-roberta" if dense else "xlm"


def _refuse(own: Own, is_so: bool, reason: str) -> None:
    if is_so:
        raise UserError(f"{own.path} has no counterpart in transformers, which has no model with {reason}")


def _has_pooler(own: Own) -> bool:
    return "heads.classification.pooler.weight" in own.state


def _encoder(own: Own, head: str | None) -> Counterpart:
    if head is not None and head not in HEADS:
        raise UserError(
            f"{own.path} was fine-tuned for {head.replace('_', ' ')}, which has no head in transformers: --no-head "
            "exports its encoder"
        )
    layout = encoder_layout(own, head)
    state = merged_positions(own, layout)
    kept = {name: value for name, value in state.items() if name.startswith(("encoder.", "output."))}
    left_out = part_names(state.keys() - kept.keys())
    crossing = [name for name in kept if ".cross_attention" in name]
    if crossing:  # VECO's encoder does not use it
        kept = {name: value for name, value in kept.items() if name not in crossing}
        left_out.append("cross_attention")
    if head is not None:
        kept = {name: value for name, value in kept.items() if name != BIAS and not name.startswith("output.")}
        left_out = [part for part in left_out if part != f"heads.{head}"]
    options = own.options | {"causal": own.is_causal}
    config = to_config(layout, options, kept, own.dictionary.symbols, own.languages)
    weights = to_theirs(layout, kept)
    if head is None:
        name = "XLMWithLMHeadModel" if layout == "xlm" else f"{_CLASSES[layout]}ForMaskedLM"
    else:
        name, more, settings = _head(own, layout, head)
        weights |= more
        config |= settings
    return Counterpart(layout, config | {"architectures": [name]}, weights, left_out)


def part_names(names: Iterable[str]) -> list[str]:
    """The parts of a model that parameters belong to: ``heads.classification``, or ``cross_attention``."""
    crossing = {name for name in names if ".cross_attention" in name}
    found = {".".join(name.split(".")[:2]) for name in names if name not in crossing}
    return sorted(found) + (["cross_attention"] if crossing else [])


def merged_positions(own: Own, layout: str) -> State:
    """The state dict with the positions of a layout: rows before position 0, and a first token without position."""
    state, first = dict(own.state), OFFSETS[layout]
    positions = with_offset(state[POSITIONS], own.options["position_offset"], first)
    if own.options.get("language_positions"):  # the first token has neither position nor segment embedding
        positions[first] = -state[SEGMENTS][0] if SEGMENTS in state else 0.0
    return state | {POSITIONS: positions}


def _head(own: Own, layout: str, head: str) -> tuple[str, State, Config]:
    """Class of transformers, parameters and settings of a fine-tuned head."""
    state, linear = own.state, _NUMBER.format(head)
    if head == "classification" and _has_pooler(own):
        pooler, output = ("classifier.dense.", "classifier.out_proj.")
        if layout == "bert":
            pooler, output = "bert.pooler.dense.", "classifier."
        places = dict(zip(_POOLED, (pooler, output)))
    elif head == "classification":
        places = {linear: "sequence_summary.summary."}
    else:
        places = {linear: "qa_outputs." if head == "question_answering" else "classifier."}
    weights = {
        theirs + kind: state[ours + kind].clone() for ours, theirs in places.items() for kind in ("weight", "bias")
    }
    settings: Config = {"classifier_dropout": own.head_dropout}
    labels = own.type_state.get("labels") or own.type_state.get("tags")
    if labels:
        settings["id2label"] = {str(row): label for row, label in enumerate(labels)}
        settings["label2id"] = {label: row for row, label in enumerate(labels)}
    if head == "classification" and layout == "xlm":
        settings |= {"summary_type": "first", "summary_use_proj": True, "summary_activation": None}
        settings |= {"summary_proj_to_labels": True, "summary_first_dropout": own.head_dropout}
    suffix = HEADS[head] + ("Simple" if layout == "xlm" and head == "question_answering" else "")
    return f"{_CLASSES[layout]}For{suffix}", weights, settings


# --- encoder-decoders ------------------------------------------------------------------------------------------


def _encoder_decoder(own: Own) -> Counterpart:
    options = own.options
    _refuse(own, "decoder.stream_embeddings.weight" in own.state, "predicting streams (xFNP)")
    _refuse(own, SEGMENTS in own.state, "segment embeddings in an encoder-decoder")
    _refuse(
        own,
        bool(own.languages),
        "language embeddings in an encoder-decoder (--lang XX-YY exports it for one direction)",
    )
    dense, pre = options["output_form"] == "dense", options["layer_norm"] == "pre"
    shared = DECODER_TOKENS not in own.state
    state = {name: value for name, value in own.state.items() if not name.startswith("heads.")}
    left_out = part_names(own.state.keys() - state.keys())
    if not dense and shared and (pre or options["layer_norm_eps"] == TORCH_EPS):
        return replace(_bart(own, state), left_out=left_out)
    _refuse(own, pre, f"pre-LN layers with {'a dense output layer' if dense else 'two tables of token embeddings'}")
    _refuse(own, options["embedding_scale"] == "sqrt", "scaled token embeddings together with this form")
    return replace(_pair(own, state, dense), left_out=left_out)


def _bart(own: Own, state: State) -> Counterpart:
    """MBart for pre-LN models, Bart for post-LN ones."""
    if own.options["layer_norm"] == "pre" and own.options["layer_norm_eps"] != TORCH_EPS:
        raise UserError(f"{own.path} has no counterpart in transformers: MBart has --layer-norm-eps {TORCH_EPS}")
    for name in (POSITIONS, DECODER_POSITIONS):
        state[name] = with_offset(state[name], own.options["position_offset"], OFFSETS["bart"])
    config = to_config("bart", own.options, state, own.dictionary.symbols, [])
    name = "MBart" if config["model_type"] == "mbart" else "Bart"
    return Counterpart(
        "bart", config | {"architectures": [f"{name}ForConditionalGeneration"]}, to_theirs("bart", state)
    )


def _pair(own: Own, state: State, dense: bool) -> Counterpart:
    """EncoderDecoderModel of two XLMRoberta or BertGeneration."""
    layouts = ("bert_encoder", "roberta_decoder" if dense else "bert_decoder")
    offset = OFFSETS[layouts[1]]
    state = dict(state)
    for name in (POSITIONS, DECODER_POSITIONS):
        state[name] = with_offset(state[name], own.options["position_offset"], offset)
    if DECODER_TOKENS not in state:
        state[DECODER_TOKENS], state[DECODER_BIAS] = state[TOKENS], state.pop(BIAS)
        logger.info("%s: EncoderDecoderModel ties no token embeddings: they are written twice", own.path)
    config: Config = {"model_type": "encoder-decoder", "is_encoder_decoder": True, "tie_word_embeddings": False}
    weights = {}
    for stack, layout in zip(("encoder", "decoder"), layouts):
        part = {name: value for name, value in state.items() if name.startswith(f"{stack}.")}
        kind = "roberta_encoder" if dense and stack == "encoder" else layout
        config[stack] = to_config(kind, own.options, state, own.dictionary.symbols, [])
        weights |= {f"{stack}.{name}": value for name, value in to_theirs(layout, part).items()}
    if dense:  # parameters that XLMRoberta has and that change nothing
        zeros = state[TOKENS].new_zeros(own.options["embed_dim"], own.options["embed_dim"])
        weights["encoder.embeddings.token_type_embeddings.weight"] = zeros[:1].clone()
        weights["decoder.roberta.embeddings.token_type_embeddings.weight"] = zeros[:1].clone()
        weights |= {"encoder.pooler.dense.weight": zeros, "encoder.pooler.dense.bias": zeros[0].clone()}
    config["architectures"] = ["EncoderDecoderModel"]
    return Counterpart("encoder-decoder", config, weights)


def sentence_encoder(own: Own, layer: int | None) -> Counterpart:
    """The encoder up to a layer, without output layer and head, for sentence embeddings.

    Args:
        layer: number of the layer whose hidden states are pooled, from 1; None: the last one.

    Raises `UserError` for a layer that the model does not have, and for a model without counterpart.
    """
    depth = count_layers(own.state, "encoder")
    layer = depth if layer is None else layer
    if not 1 <= layer <= depth:
        raise UserError(f"--layer {layer}: expected 1 to {depth}, the layers of {own.path}")
    _refuse(own, bool(own.languages), "language embeddings (--lang XX exports the model for one language)")
    deeper = tuple(f"encoder.layers.{number}." for number in range(layer, depth))
    kept = {
        name: value
        for name, value in own.state.items()
        if name.startswith("encoder.") and name != BIAS and not name.startswith(deeper)
    }
    # without its output layer, a model of XLM's form is one of XLM-R's form
    found = _encoder(replace(own, state=kept, options=own.options | {"output_form": "dense"}), None)
    prefix, zeros = _PREFIXES[found.layout], kept[TOKENS].new_zeros(kept[TOKENS].size(1), kept[TOKENS].size(1))
    pooler = {f"{prefix}.pooler.dense.weight": zeros, f"{prefix}.pooler.dense.bias": zeros[0].clone()}  # not used
    config = found.config | {"architectures": [f"{_CLASSES[found.layout]}Model"]}
    config[OURS] = {"framing": own.options["framing"]}
    return replace(found, config=config, weights=found.weights | pooler)
