"""Parameter names: those of earlier versions, fairseq's RoBERTa (XLM-R), transformers' XLM-R and XLM, XLM's decoder.

Pure functions on state dicts; our names are listed in `XLEncoderModel` and `XLEncoderDecoderModel`. Shapes don't
depend on the number of attention heads: `fairseq_xl.checkpoints.published` compares the settings stored in a file.
"""

import re
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from fairseq_xl.errors import UserError

State = dict[str, Tensor]
Names = Mapping[str, tuple[str, ...]]  # our module or parameter -> the file's, whose rows are joined in this order

TOKENS = "encoder.token_embeddings.table.weight"
BIAS = "encoder.token_embeddings.output_bias"
POSITIONS = "encoder.embeddings.positions.weight"
LANGUAGES = "encoder.embeddings.languages.weight"

#: names of parameters in checkpoints and language modules of earlier versions -> present names
_OLD_NAMES = {
    r"^(encoder|decoder)\.bank\.tokens\.": r"\1.token_embeddings.table.",
    r"^(encoder|decoder)\.bank\.bias$": r"\1.token_embeddings.output_bias",
    r"^(encoder|decoder)\.bank\.special\.": r"\1.token_embeddings.special.",
    r"^decoder\.futures\.": "decoder.stream_embeddings.",
}


def upgrade_keys(state: State) -> State:
    """Renames the parameters in a state dict of an earlier version to their present names; returns a new dict."""

    def upgrade(name: str) -> str:
        for old, new in _OLD_NAMES.items():
            name = re.sub(old, new, name)
        return name

    return {upgrade(name): value for name, value in state.items()}


def from_fairseq_roberta(state: State) -> State:
    """Converts fairseq's RobertaModel, in present names or those of the XLM-R files (decoder.*, emb_layer_norm).

    The model needs position_offset 2, output_form dense, language_embeddings none, layer_norm_eps 1e-5.

    Args:
        state: the file's state dict

    Returns:
        our state dict; without token_embeddings.output_bias and output.* where the file has no output layer

    Raises:
        UserError: names that are missing or left over; an output layer that is not tied
    """

    def simplify(name: str) -> str:
        name = re.sub(r"^(encoder|decoder)\.", "", name).removeprefix("sentence_encoder.")
        return name.replace("emb_layer_norm.", "layernorm_embedding.")

    stem = {
        TOKENS: ("embed_tokens.weight",),
        POSITIONS: ("embed_positions.weight",),
        "encoder.embeddings.norm": ("layernorm_embedding",),
    }
    head = {BIAS: ("lm_head.bias",), "output.dense": ("lm_head.dense",), "output.norm": ("lm_head.layer_norm",)}
    layer = {
        "self_attention.qkv": tuple(f"layers.{{n}}.self_attn.{part}_proj" for part in "qkv"),
        "self_attention.out": ("layers.{n}.self_attn.out_proj",),
        "self_attention_norm": ("layers.{n}.self_attn_layer_norm",),
        "ffn.up": ("layers.{n}.fc1",),
        "ffn.down": ("layers.{n}.fc2",),
        "ffn_norm": ("layers.{n}.final_layer_norm",),
    }
    given = _simplified(state, simplify, ignored=("version",))
    _drop_tied(given, {"lm_head.weight": "embed_tokens.weight"})
    return _convert(given, stem, head, layer)


def from_transformers_xlm_roberta(state: State) -> State:
    """Converts transformers' XLMRobertaModel or XLMRobertaForMaskedLM; arguments as `from_fairseq_roberta`.

    The embedding of the only token type is added to the positions. The pooler is left out.

    Raises:
        UserError: also for more than one token type
    """
    stem = {
        TOKENS: ("embeddings.word_embeddings.weight",),
        POSITIONS: ("embeddings.position_embeddings.weight",),
        "encoder.embeddings.norm": ("embeddings.LayerNorm",),
    }
    head = {BIAS: ("lm_head.bias",), "output.dense": ("lm_head.dense",), "output.norm": ("lm_head.layer_norm",)}
    layer = {
        "self_attention.qkv": tuple(f"encoder.layer.{{n}}.attention.self.{part}" for part in ("query", "key", "value")),
        "self_attention.out": ("encoder.layer.{n}.attention.output.dense",),
        "self_attention_norm": ("encoder.layer.{n}.attention.output.LayerNorm",),
        "ffn.up": ("encoder.layer.{n}.intermediate.dense",),
        "ffn.down": ("encoder.layer.{n}.output.dense",),
        "ffn_norm": ("encoder.layer.{n}.output.LayerNorm",),
    }
    given = _simplified(
        state,
        lambda name: name.removeprefix("roberta."),
        ignored=("embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias"),
    )
    _drop_tied(
        given, {"lm_head.decoder.weight": "embeddings.word_embeddings.weight", "lm_head.decoder.bias": "lm_head.bias"}
    )
    types = given.pop("embeddings.token_type_embeddings.weight", None)
    if types is not None and len(types) > 1:
        raise UserError(f"the weights have {len(types)} token types; only one can be converted")
    converted = _convert(given, stem, head, layer)
    if types is not None:
        converted[POSITIONS] = converted[POSITIONS] + types
    return converted


def from_transformers_xlm(state: State) -> State:
    """Converts transformers' XLMModel or XLMWithLMHeadModel for our default config; see `from_fairseq_roberta`.

    Sinusoidal positions are taken over as a table. Where the file has no language embeddings the model needs
    language_embeddings none. transformers keeps no table of token types for XLM.
    """
    return _from_xlm(state, {})


def from_xlm_decoder(state: State) -> State:
    """Converts the decoder of XLM's translation models to our names, ``decoder.*``; see `from_transformers_xlm`.

    Raises `UserError` if it has no output layer.
    """
    cross_attention = {
        "cross_attention.query": ("encoder_attn.{n}.q_lin",),
        "cross_attention.key_value": ("encoder_attn.{n}.k_lin", "encoder_attn.{n}.v_lin"),
        "cross_attention.out": ("encoder_attn.{n}.out_lin",),
        "cross_attention_norm": ("layer_norm15.{n}",),
    }
    converted = _from_xlm(state, cross_attention)
    if BIAS not in converted:
        raise UserError("the weights have no output layer (pred_layer.proj)")
    return {name.replace("encoder.", "decoder.", 1): tensor for name, tensor in converted.items()}


def _from_xlm(state: State, cross_attention: Names) -> State:
    stem = {
        TOKENS: ("embeddings.weight",),
        POSITIONS: ("position_embeddings.weight",),
        "encoder.embeddings.norm": ("layer_norm_emb",),
    }
    layer = {
        **cross_attention,
        "self_attention.qkv": tuple(f"attentions.{{n}}.{part}_lin" for part in "qkv"),
        "self_attention.out": ("attentions.{n}.out_lin",),
        "self_attention_norm": ("layer_norm1.{n}",),
        "ffn.up": ("ffns.{n}.lin1",),
        "ffn.down": ("ffns.{n}.lin2",),
        "ffn_norm": ("layer_norm2.{n}",),
    }
    given = _simplified(state, lambda name: name.removeprefix("transformer."), ignored=("position_ids",))
    if "lang_embeddings.weight" in given:
        stem[LANGUAGES] = ("lang_embeddings.weight",)
    _drop_tied(given, {"pred_layer.proj.weight": "embeddings.weight"})
    return _convert(given, stem, {BIAS: ("pred_layer.proj.bias",)}, layer)


def _simplified(state: State, simplify: Callable[[str], str], ignored: tuple[str, ...]) -> State:
    simple = {simplify(name): tensor for name, tensor in state.items()}
    return {name: tensor for name, tensor in simple.items() if name not in ignored}


def _drop_tied(given: State, ties: dict[str, str]) -> None:
    """Removes the second copies of tied parameters; `UserError` if they are not copies."""
    for copy, original in ties.items():
        if copy in given and original in given and not torch.equal(given.pop(copy), given[original]):
            raise UserError(f"{copy} differs from {original}; only models that tie them can be converted")


def _convert(given: State, stem: Names, head: Names, layer: Names) -> State:
    wanted = dict(stem)
    if any(name.startswith(sources) for name in given for sources in head.values()):
        wanted.update(head)
    for number in range(_count_layers(given, layer)):
        for ours, sources in layer.items():
            wanted[f"encoder.layers.{number}.{ours}"] = tuple(source.format(n=number) for source in sources)
    parameters = {}
    for ours, sources in wanted.items():
        if ours in (TOKENS, BIAS, POSITIONS, LANGUAGES):
            parameters[ours] = sources
        else:
            parameters |= {f"{ours}.{kind}": [f"{source}.{kind}" for source in sources] for kind in ("weight", "bias")}
    used = {source for sources in parameters.values() for source in sources}
    missing, unexpected = sorted(used - given.keys()), sorted(given.keys() - used)
    if missing or unexpected:
        raise UserError(
            f"the weights are not of this kind of model: {_list(missing)} missing, {_list(unexpected)} unexpected"
        )
    return {ours: torch.cat([given[source] for source in sources]) for ours, sources in parameters.items()}


def _count_layers(given: State, layer: Names) -> int:
    """Counts layers by the highest layer number in the file, so that a gap shows as missing names."""
    patterns = [re.escape(source).replace(r"\{n\}", r"(\d+)") + r"\." for names in layer.values() for source in names]
    numbers = [int(found[1]) for name in given for pattern in patterns if (found := re.match(pattern, name))]
    return max(numbers, default=0) + 1


def _list(names: list[str]) -> str:
    shown = ", ".join(names[:5]) or "nothing"
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown
