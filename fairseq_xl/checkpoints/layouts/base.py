"""Base class of layouts, which convert the files of a family of models of other programs to our models and back.

A new layout takes one file, in this package or in another one (`fairseq_xl/README.md`). V symbols, C channels.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from fairseq_xl.checkpoints.layouts import published_vocabularies
from fairseq_xl.checkpoints.layouts.name_mapping import State, Table
from fairseq_xl.checkpoints.layouts.plugin_checkpoint import Own, with_offset
from fairseq_xl.checkpoints.layouts.published_files import beside, fairseq_settings
from fairseq_xl.checkpoints.layouts.weight_checks import check_settings, check_shapes
from fairseq_xl.checkpoints.parameter_names import BIAS, DECODER_BIAS, DECODER_POSITIONS, LANGUAGES, POSITIONS, SEGMENTS
from fairseq_xl.data.framing import FRAMINGS
from fairseq_xl.data.vocabulary.special_symbols import SPECIAL
from fairseq_xl.data.vocabulary.subwords import Kind
from fairseq_xl.errors import UserError
from fairseq_xl.io.options import option_name

Settings = dict[str, Any]

#: name -> the layout, in the order in which files are recognized
LAYOUTS: dict[str, "Layout"] = {}
LayoutClass = TypeVar("LayoutClass", bound=type["Layout"])

BOS, PAD, EOS, UNK = range(len(SPECIAL))
#: LayerNorm's epsilon where a layout stores none: torch's default
TORCH_EPS = 1e-5
DICTIONARY, PIECES, WORDS, WORDPIECES = "dict.txt", "sentencepiece.bpe.model", "vocab.json", "vocab.txt"
TOKENIZER = "tokenizer.json"
#: entry of a config.json that this package wrote, with the framing of the model's inputs
PLUGIN = "fairseq_xl"
#: patterns of names in files that have no counterpart here and change no output
IGNORED = (r".*position_ids", r".*\bversion", r".*_float_tensor")
#: setting of a file -> the only value that our layers compute; absent settings have it
_ONLY = {"is_decoder": False, "causal": False, "asm": False, "position_embedding_type": "absolute"}
#: heads of transformers, as its class names end
SEQUENCES, TOKEN_LABELS, QUESTIONS = "SequenceClassification", "TokenClassification", "QuestionAnswering"
HEAD_NAMES = {TOKEN_LABELS: ("classifier.",), QUESTIONS: ("qa_outputs.",)}
ONE_LABEL = "single_label_classification"  # the problem_type of our classification; a ranking has none


@dataclass(frozen=True)
class Head:
    """A fine-tuned head of transformers, of a class whose name ends in `kind`."""

    kind: str
    state: State  # parameters by their names in our head
    labels: list[str]
    dropout: float


@dataclass(frozen=True)
class Counterpart:
    """A model of transformers that computes what a model of ours computes."""

    layout: "Layout"
    config: Settings  # its config.json
    weights: State  # its parameters by their names there
    left_out: list[str]  # parts of our model that it does not have and that change none of its outputs


class Layout:
    """Base class of all layouts. A subclass overrides what differs; it has no state."""

    name: str  # in the registry and in messages
    names: Table  # of the parameters, ours and those in the files
    #: (pattern of a name, its replacement): earlier names, and models without the prefix of a head's model
    renames: tuple[tuple[str, str], ...] = ()
    ignored_heads = r"(classifier|qa_outputs|sequence_summary)\."  # parameters of heads, which are not read
    model_types: tuple[str, ...] = ()  # in config.json, first the one that is written; none: there is no config.json
    typical_names: tuple[str, ...] = ()  # patterns of names in files without config.json, which all have to be there
    shares_activation = False  # whether the dense output layer has the activation of the layers; ours has GELU
    position_offset = 0  # rows of the position embeddings before position 0
    framing = "xl"
    subwords: Kind = "sentencepiece"
    vocabulary_files: tuple[str, ...] = (PIECES, TOKENIZER, DICTIONARY)  # the first one that is there is read
    architecture = "xl_xlmr_base"  # of an encoder; all options that change its weights are set
    config_entries: Mapping[str, str] = {}  # entries of config.json and our options
    #: our options -> their values in files without such an entry; an option that has no entry has no other value
    constants: Mapping[str, Any] = {"layer_norm": "post", "embedding_scale": "none"}
    form: Mapping[str, Any] = {}  # options that tell its models from those of other layouts
    #: options of ours that have no entry in config.json, since the weights show their values
    expressed: tuple[str, ...] = ("segment_embeddings", "language_positions")
    #: parameters of ours that files lack: --init-from freezes them, so that trained models go out
    frozen: tuple[str, ...] = ()
    summed: tuple[str, ...] = ()  # names of parameters in files that our model has as one parameter, their sum
    compares_values = False  # whether `to_ours` compares values of weights
    model_class, encoder_prefix = "", ""  # prefixes of the classes of transformers and of an encoder's parameters
    class_prefixes: Mapping[str, str] = {}  # `model_class` of further model types
    classifier_names: tuple[str, ...] = ()  # prefixes of the parameters of its pooler and output, or of its only layer
    pooler_activation = "tanh"
    #: head of transformers -> entry of its dropout other than classifier_dropout
    dropout_entries: Mapping[str, str] = {}

    @classmethod
    def register(cls, layout: LayoutClass) -> LayoutClass:
        """Class decorator that makes the layout known under its `name`."""
        if layout.name in LAYOUTS:
            raise ValueError(f"layout {layout.name!r} is registered twice")
        LAYOUTS[layout.name] = layout()
        return layout

    # --- from the files ----------------------------------------------------------------------------------------

    def recognizes(self, names: set[str]) -> bool:
        """Whether a checkpoint without config.json, with parameters of these names, has the layout."""
        patterns = [re.compile(pattern) for pattern in self.typical_names]
        return bool(patterns) and all(any(pattern.fullmatch(name) for name in names) for pattern in patterns)

    def settings(self, checkpoint: Settings) -> Settings:
        """The settings of a checkpoint without config.json, and other entries that the methods need."""
        return check_settings(fairseq_settings(checkpoint))

    def to_ours(self, weights: State, settings: Settings) -> State:
        """Converts weights to our names, in float32; `UserError` for names, shapes and values that do not fit."""
        weights = {
            self.canonical(name): value.float() if value.is_floating_point() else value
            for name, value in weights.items()
        }
        state = self.table(settings).to_ours(weights)
        check_shapes(state)
        return state

    def canonical(self, name: str) -> str:
        """The name of a parameter without what `renames` replaces."""
        for pattern, replacement in self.renames:
            name = re.sub(pattern, replacement, name)
        return name

    def table(self, settings: Settings) -> Table:
        """`names`, where these depend on the settings."""
        return self.names

    def options(self, settings: Settings, state: State) -> Settings:
        """Converts settings to options of our model and task, by name; sizes come from the shapes of our weights.

        The number of heads changes no shape, but weights for another number of heads mean something else. Without an
        output layer any `output_form` fits, and it is left out. Raises `UserError` for a missing setting, and for one
        that our layers do not have.
        """
        for name, only in _ONLY.items():
            if settings.get(name, only) not in (only, None):
                raise UserError(f"its {name} is {settings[name]}; only {only} can be converted")
        positions, plugin = state[POSITIONS], settings.get(PLUGIN)
        framing = plugin.get("framing") if isinstance(plugin, dict) else None
        options: Settings = {
            **self.constants,
            "framing": framing if framing in FRAMINGS else self.default_framing(settings),
            "activation": self.activation(self.setting(settings, "activation"), state),
            "heads": self.setting(settings, "heads"),
            "embed_dim": positions.size(1),
            "ffn_dim": state["encoder.layers.0.ffn.up.bias"].size(0),
            "layer_norm_eps": self.setting(settings, "layer_norm_eps"),
            "position_offset": self.position_offset,
            "max_positions": len(positions) - self.position_offset,
            "language_embeddings": "added" if LANGUAGES in state else "none",
            "segment_embeddings": "added" if SEGMENTS in state else "none",
        }
        if BIAS in state or DECODER_BIAS in state:
            options["output_form"] = "dense" if "output.dense.weight" in state else "plain"
        return options

    def setting(self, settings: Settings, option: str) -> Any:
        """The value of an option of ours in a file; raises `UserError` if the file lacks it and it is no constant."""
        entry = next((entry for entry, name in self.config_entries.items() if name == option), "")
        return required({entry: self.constants.get(option)} | settings, entry)

    def activation(self, activation: Any, state: State) -> str:
        """Our name of an activation; raises `UserError` for one that our layers do not have."""
        valid = ("gelu",) if self.shares_activation and "output.dense.weight" in state else ("gelu", "relu")
        if activation not in valid:
            raise UserError(f"its activation is {activation}; {' and '.join(valid)} can be converted")
        return str(activation)

    def default_framing(self, settings: Settings) -> str:
        """The framing of a model that this package did not write."""
        return self.framing

    def vocabulary(self, count: int, file: Path, settings: Settings) -> published_vocabularies.Vocabulary:
        """The vocabulary of `count` rows, from a file beside the weights."""
        return published_vocabularies.from_pieces(count, beside(file, *self.vocabulary_files))

    def head_names(self, kind: str) -> dict[str, str]:
        """{parameter of our head: its name in files} of a head of transformers."""
        prefixes = HEAD_NAMES.get(kind, self.classifier_names)
        parts = ("pooler", "output") if len(prefixes) == 2 else ("1",)
        return {f"{part}.{kind}": pre + kind for part, pre in zip(parts, prefixes) for kind in ("weight", "bias")}

    def read_head(self, weights: State, settings: Settings) -> Head | None:
        """The fine-tuned head of a model of transformers; None without one that a task of ours computes.

        Raises `UserError` for labels that are not those of its outputs.
        """
        classes = settings.get("architectures") or ()
        kind = next((kind for kind in (SEQUENCES, TOKEN_LABELS, QUESTIONS) for name in classes if kind in name), "")
        names = self.head_names(kind)
        if not kind or not weights.keys() >= {*names.values()} or settings.get("problem_type") not in (None, ONE_LABEL):
            return None
        state = {parameter: weights[name].float() for parameter, name in names.items()}
        bias, channels = list(state.values())[-1].flatten(), self.setting(settings, "embed_dim")
        shapes = [(channels, channels), (channels,), (len(bias), channels), (len(bias),)]
        if [tuple(value.shape) for value in state.values()] != shapes[-len(state) :]:
            raise UserError(f"its {names['1.weight' if len(state) == 2 else 'pooler.weight']} has another shape")
        labels = [f"LABEL_{row}" for row in range(len(bias))]
        if named := settings.get("id2label"):
            labels = [str(named.get(str(row))) for row in range(len(bias))]
            if len({*labels} - {"None"}) != len(named) or len(named) != len(labels):
                raise UserError(f"its id2label {named} does not name the {len(labels)} outputs of its head")
        dropout = settings.get(self.dropout_entries.get(kind, "classifier_dropout"))
        return Head(kind, state, labels, self.setting(settings, "dropout") if dropout is None else dropout)

    # --- to the files ------------------------------------------------------------------------------------------

    def has_form(self, model: Own, head: str | None) -> bool:
        """Whether the layout is for models of this form, with the fine-tuned `head` of transformers or None."""
        return bool(self.form) and all(model.options.get(name, value) == value for name, value in self.form.items())

    def obstacles(self, model: Own, head: str | None) -> dict[str, bool]:
        """Reasons against a counterpart in transformers: {feature that it lacks: whether our model has it}."""
        expressed = (*self.config_entries.values(), *self.expressed)
        reasons = {
            f"{option_name(name)} {model.options[name]} in the form of {self.name}, where it is {only}": (
                model.options[name] != only
            )
            for name, only in {**model.absent, **self.constants}.items()
            if name not in expressed
        }
        if head and (pooling := model.options.get("pooling") or "first") != "first":
            reasons[f"a classifier that reads pooled hidden states (--pooling {pooling})"] = True
        activation = model.options.get("pooler_activation") or "tanh"
        if head == SEQUENCES and has_pooler(model) and activation != self.pooler_activation:
            reasons[f"--pooler-activation {activation} in the form of {self.name}"] = True
        if model.has_decoder:
            has_languages = "language embeddings in an encoder-decoder (--lang XX-YY exports it for one direction)"
            reasons["predicting streams (xFNP)"] = "decoder.stream_embeddings.weight" in model.state
            reasons["segment embeddings in an encoder-decoder"] = SEGMENTS in model.state
            reasons[has_languages] = bool(model.languages)
        return reasons

    def to_theirs(self, state: State) -> State:
        """The inverse of `to_ours`; raises `UserError` for parameters that the layout does not have."""
        return self.names.to_theirs(dict(state))

    def config(self, model: Own, state: State, stack: str = "encoder") -> Settings:
        """The config.json of our weights `state`, or of one stack where stacks have their own; without class names."""
        config: Settings = {entry: model.options[name] for entry, name in self.config_entries.items()}
        config |= {"bos_token_id": BOS, "pad_token_id": PAD, "eos_token_id": EOS, "vocab_size": len(model.dictionary)}
        positions = len(state[f"{stack}.embeddings.positions.weight"])
        return config | {"model_type": self.model_types[0], "max_position_embeddings": positions}

    def class_name(self, head: str | None) -> str:
        """The class of transformers, with a fine-tuned head or with the output layer."""
        return f"{self.model_class}For{head or 'MaskedLM'}"

    def head_config(self, model: Own, head: str) -> Settings:
        """The settings of a fine-tuned head in config.json."""
        output = model.state[f"heads.{model.head}.{'output' if has_pooler(model) else '1'}.bias"]
        labels = model.type_state.get("labels") or [f"LABEL_{row}" for row in range(len(output))]
        return {
            self.dropout_entries.get(head, "classifier_dropout"): model.head_dropout,
            **({"problem_type": ONE_LABEL} if head == SEQUENCES and len(labels) > 1 else {}),
            "id2label": {str(row): label for row, label in enumerate(labels)},
            "label2id": {label: row for row, label in enumerate(labels)},
        }

    def positions(self, model: Own) -> State:
        """The state dict with the positions of the layout: rows before position 0, a first token without position."""
        state, offset = dict(model.state), model.options["position_offset"]
        for name in (POSITIONS, DECODER_POSITIONS):
            if name in state:
                state[name] = with_offset(state[name], offset, self.position_offset)
        if model.options.get("language_positions"):  # the first token has neither position nor segment embedding
            state[POSITIONS][self.position_offset] = -state[SEGMENTS][0] if SEGMENTS in state else 0.0
        return state

    def export(self, model: Own, head: str | None) -> Counterpart:
        """The model of transformers that computes what an encoder of ours computes; with `head`, a fine-tuned one."""
        state = self.positions(model)
        exported = encoder_part(state)
        left_out = part_names(state.keys() - exported.keys())
        if head:
            exported = {k: v for k, v in exported.items() if k != BIAS and not k.startswith("output.")}
        config = self.config(model, exported)
        weights = self.to_theirs(exported)
        if head:
            left_out.remove(f"heads.{model.head}")
            config |= self.head_config(model, head)
            for parameter, name in self.head_names(head).items():
                weights[name] = state[f"heads.{model.head}.{parameter}"].clone()
        name = self.class_name(head) if head or BIAS in exported else f"{self.model_class}Model"
        return Counterpart(self, config | {"architectures": [name]}, weights, left_out)


def required(settings: Settings, name: str) -> Any:
    """A setting; raises `UserError` without it."""
    if settings.get(name) is None:
        raise UserError(f"it stores no {name}")
    return settings[name]


def encoder_part(state: State) -> State:
    """The parameters of the encoder and its output layer; VECO's encoder ignores its cross-attention."""
    names = [name for name in state if name.startswith(("encoder.", "output.")) and ".cross_attention" not in name]
    return {name: state[name] for name in names}


def has_pooler(model: Own) -> bool:
    """Whether the head of a fine-tuned model has a pooler in front of its output."""
    return f"heads.{model.head}.pooler.weight" in model.state


def part_names(names: Iterable[str]) -> list[str]:
    """The parts of a model that parameters belong to: ``heads.classification``, or ``cross_attention``."""
    crossing = {name for name in names if ".cross_attention" in name}
    parts = {".".join(name.split(".")[:2]) for name in names if name not in crossing}
    return sorted(parts) + (["cross_attention"] if crossing else [])
