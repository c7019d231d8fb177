"""A model's settings in the files of other programs, and our options that compute the same: both directions.

`to_options` reads the settings of a file (a config.json, fairseq's args, XLM's params), `to_config` writes the config
of transformers. Sizes come from the shapes of the weights.
"""

from typing import Any

from torch import Tensor

from fairseq_xl.checkpoints.layouts.layout_tables import DECODER_BIAS, SEGMENTS
from fairseq_xl.checkpoints.parameter_names import BIAS, LANGUAGES, POSITIONS
from fairseq_xl.checkpoints.stacks import count_layers
from fairseq_xl.data.framing import FRAMINGS
from fairseq_xl.data.vocabulary.special_symbols import MASK, SPECIAL
from fairseq_xl.errors import UserError

Settings = dict[str, Any]
State = dict[str, Tensor]

BOS, PAD, EOS, UNK = range(len(SPECIAL))
#: LayerNorm's epsilon where a layout stores none: a constant in the code of XLM, and torch's default
XLM_EPS, TORCH_EPS = 1e-12, 1e-5
#: layout -> names of the number of heads and of the activation
_NAMES = {
    "fairseq_roberta": ("encoder_attention_heads", "activation_fn"),
    "fairseq_transformer": ("encoder_attention_heads", "activation_fn"),
    "xlm-roberta": ("num_attention_heads", "hidden_act"),
    "bert": ("num_attention_heads", "hidden_act"),
    "bert_decoder": ("num_attention_heads", "hidden_act"),
    "bart": ("encoder_attention_heads", "activation_function"),
    "xlm": ("n_heads", "gelu_activation"),
}
#: layout -> framing of its inputs
_FRAMINGS = {"bert": "bert", "xlm": "xlm", "bart": "mbart", "fairseq_transformer": "mbart"}
#: layout -> rows of the position embeddings before position 0
OFFSETS = {
    **dict.fromkeys(("xlm", "bert", "bert_decoder"), 0),
    **dict.fromkeys(("fairseq_roberta", "fairseq_transformer", "xlm-roberta", "bart", "roberta_decoder"), 2),
}
#: setting of a file -> the only value that our layers compute; absent settings have it
_ONLY = {"is_decoder": False, "causal": False, "asm": False, "position_embedding_type": "absolute"}
_STACKS, _RATES = ("encoder", "decoder"), ("dropout", "attention_dropout", "activation_dropout")
#: kind of config of transformers -> its entries -> our options
_ENTRIES: dict[str, dict[str, str]] = {
    "xlm": {"emb_dim": "embed_dim", "n_heads": "heads", **{name: name for name in ("layer_norm_eps", *_RATES[:2])}},
    "bart": {
        **{"d_model": "embed_dim", "activation_function": "activation"} | dict(zip(_RATES, _RATES)),
        **{f"{stack}_attention_heads": "heads" for stack in _STACKS},
        **{f"{stack}_ffn_dim": "ffn_dim" for stack in _STACKS},
    },
    "bert": {
        **{"hidden_size": "embed_dim", "intermediate_size": "ffn_dim", "num_attention_heads": "heads"},
        **{"hidden_act": "activation", "layer_norm_eps": "layer_norm_eps"},
        **{"hidden_dropout_prob": "dropout", "attention_probs_dropout_prob": "attention_dropout"},
    },
}
#: entry of a config.json that this package wrote, with the framing of the model's inputs
OURS = "fairseq_xl"


def to_options(layout: str, settings: Settings, state: State) -> Settings:
    """Converts a file's settings to options of our model and task, by name.

    Args:
        layout: a key of `tables.TABLES`.
        settings: the file's settings.
        state: its weights under our names, whose shapes give the sizes.

    The number of heads changes no shape, but weights for another number of heads mean something else. Without an output
    layer any `output_form` fits, and it is left out. Raises `UserError` for a missing setting, and for one that our
    layers do not have.
    """
    for name, only in _ONLY.items():
        if settings.get(name, only) not in (only, None):
            raise UserError(f"its {name} is {settings[name]}; only {only} can be converted")
    heads, activation = _NAMES[layout]
    chosen = _activation(layout, _needed(settings, activation), state)
    offset = OFFSETS[layout]
    positions = state[POSITIONS]
    options: Settings = {
        "framing": _framing(layout, settings),
        "heads": _needed(settings, heads),
        "embed_dim": positions.size(1),
        "ffn_dim": state["encoder.layers.0.ffn.up.bias"].size(0),
        "activation": chosen,
        "layer_norm_eps": _eps(layout, settings),
        "position_offset": offset,
        "max_positions": len(positions) - offset,
        "language_embeddings": "added" if LANGUAGES in state else "none",
        "segment_embeddings": "added" if SEGMENTS in state else "none",
        "layer_norm": "post",
        "embedding_scale": "none",
    }
    if BIAS in state or DECODER_BIAS in state:
        options["output_form"] = "dense" if "output.dense.weight" in state else "plain"
    if layout in ("bart", "fairseq_transformer"):
        options |= _of_encoder_decoder(layout, settings, state)
    if layout == "xlm-roberta" and _needed(settings, "pad_token_id") != PAD:
        raise UserError(f"config.json has pad_token_id {settings['pad_token_id']}, where XLM-R has {PAD}")
    return options


def _framing(layout: str, settings: Settings) -> str:
    """The framing that a config.json of this package names, or else the framing of the layout's models."""
    ours = settings.get(OURS)
    if isinstance(ours, dict) and ours.get("framing") in FRAMINGS:
        return ours["framing"]
    return "xl" if settings.get("model_type") == "bart" else _FRAMINGS.get(layout, "xl")


def _of_encoder_decoder(layout: str, settings: Settings, state: State) -> Settings:
    """Options of encoder-decoders: LayerNorm, scale and shared embeddings. Raises `UserError` for unequal stacks."""
    for name in ("attention_heads", "ffn_dim" if layout == "bart" else "ffn_embed_dim"):
        sides = [settings.get(f"{stack}_{name}") for stack in ("encoder", "decoder")]
        if None not in sides and sides[0] != sides[1]:
            raise UserError(f"its encoder and decoder differ in {name}: {sides[0]} and {sides[1]}")
    pre = "encoder.final_norm.weight" in state
    if layout == "bart":
        scaled = bool(settings.get("scale_embedding", False))
    else:
        scaled = not settings.get("no_scale_embedding", False)
        before = [bool(settings.get(f"{stack}_normalize_before", False)) for stack in ("encoder", "decoder")]
        if before != [pre, pre]:
            raise UserError(
                "its settings and weights differ: encoder_normalize_before and decoder_normalize_before are "
                f"{before[0]} and {before[1]}, and it has {'' if pre else 'no '}LayerNorms after the last layers"
            )
    return {
        "layer_norm": "pre" if pre else "post",
        "embedding_scale": "sqrt" if scaled else "none",
        "share_embeddings": True,
        "output_form": "plain",
    }


def _eps(layout: str, settings: Settings) -> float:
    if layout in ("fairseq_roberta", "fairseq_transformer", "bart"):
        return TORCH_EPS
    return settings.get("layer_norm_eps", XLM_EPS) if layout == "xlm" else _needed(settings, "layer_norm_eps")


def _activation(layout: str, found: Any, state: State) -> str:
    if layout == "xlm":
        return "gelu" if found else "relu"
    # the dense output layer of fairseq's RoBERTa and of BERT has the same activation as the layers, ours has GELU
    dense = layout in ("fairseq_roberta", "bert") and "output.dense.weight" in state
    valid = ("gelu",) if dense else ("gelu", "relu")
    if found not in valid:
        raise UserError(f"its activation is {found}; {' and '.join(valid)} can be converted")
    return found


def _needed(settings: Settings, name: str) -> Any:
    if settings.get(name) is None:
        raise UserError(f"it stores no {name}")
    return settings[name]


# --- to transformers -------------------------------------------------------------------------------------------


def to_config(layout: str, options: Settings, state: State, symbols: list[str], languages: list[str]) -> Settings:
    """The config of transformers for weights of ours, without the names of its classes.

    Args:
        layout: xlm-roberta, bert, xlm, bart, roberta_decoder or bert_decoder, or the encoder of one of these.
        options: options of our model.
        state: the weights under our names.
        symbols: of all rows of the token embeddings.
        languages: languages of the language embeddings; empty without them.
    """
    kind = layout if layout in _ENTRIES else "bert"
    stack = "decoder" if layout.endswith("decoder") else "encoder"
    depth = {f"{name}_layers": count_layers(state, name) for name in _STACKS}
    positions = len(state[f"{stack}.embeddings.positions.weight"]) - (2 if kind == "bart" else 0)
    options = {**dict.fromkeys(_RATES, 0.1), **options}
    config: Settings = {entry: options[name] for entry, name in _ENTRIES[kind].items()}
    config |= {"bos_token_id": BOS, "pad_token_id": PAD, "eos_token_id": EOS, "vocab_size": len(symbols)}
    config |= {"max_position_embeddings": positions}
    if kind == "xlm":
        rows, mask = range(len(languages)), symbols.index(MASK)
        return config | {
            **{"model_type": "xlm", "is_encoder": True, "causal": bool(options.get("causal"))},
            **{"n_layers": depth["encoder_layers"], "gelu_activation": options["activation"] == "gelu"},
            **{"use_lang_emb": bool(languages), "n_langs": max(len(languages), 1)},
            **{"lang2id": dict(zip(languages, rows)), "id2lang": dict(zip(map(str, rows), languages))},
            **{"bos_index": BOS, "pad_index": PAD, "eos_index": EOS, "unk_index": UNK},
            **{"mask_index": mask, "mask_token_id": mask},
        }
    config |= {"tie_word_embeddings": True}
    if kind == "bart":
        config |= {"model_type": "mbart" if options["layer_norm"] == "pre" else "bart", "is_encoder_decoder": True}
        return config | depth | {"scale_embedding": options["embedding_scale"] == "sqrt"}
    generation = layout.startswith("bert_")
    config["model_type"] = "bert-generation" if generation else "bert" if layout == "bert" else "xlm-roberta"
    config["num_hidden_layers"] = depth[f"{stack}_layers"]
    if not generation:
        config["type_vocab_size"] = 2 if layout == "bert" else 1
    return config | ({"is_decoder": True, "add_cross_attention": True} if stack == "decoder" else {})
