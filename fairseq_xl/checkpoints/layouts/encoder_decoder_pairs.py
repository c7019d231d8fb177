"""transformers' EncoderDecoderModel of two XLMRoberta or two BertGeneration: its weights under our names, and options.

`counterparts` writes such models. C channels.
"""

import torch

from fairseq_xl.checkpoints.layouts.layout_tables import (
    DECODER_BIAS,
    DECODER_POSITIONS,
    DECODER_TOKENS,
    TABLES,
)
from fairseq_xl.checkpoints.layouts.model_settings import Settings, to_options
from fairseq_xl.checkpoints.layouts.name_mapping import State
from fairseq_xl.checkpoints.layouts.weight_checks import check_shapes
from fairseq_xl.checkpoints.parameter_names import BIAS, POSITIONS, TOKENS
from fairseq_xl.errors import UserError

MODEL_TYPE = "encoder-decoder"
#: model_type of both stacks -> layout of the decoder, layout whose settings the stacks have
KINDS = {"xlm-roberta": ("roberta_decoder", "xlm-roberta"), "bert-generation": ("bert_decoder", "bert_decoder")}
_TYPES = "embeddings.token_type_embeddings.weight"
#: entries of a stack's config that must be the same in both
_SHARED = ("hidden_size", "num_attention_heads", "intermediate_size", "hidden_act", "layer_norm_eps")


def pair_to_ours(given: State, config: Settings) -> tuple[State, Settings]:
    """Converts the weights and the settings of an EncoderDecoderModel to ours.

    Two equal tables of token embeddings become one, which encoder and decoder share. The embedding of XLMRoberta's only
    token type is added to the positions.

    Args:
        given: the weights by their names there.
        config: its config.json, with the settings of both stacks.

    Returns: the state dict under our names, and options of our model.
    Raises `UserError` for other stacks, and for stacks that differ in a setting.
    """
    stacks = [config.get(name) for name in ("encoder", "decoder")]
    encoder, decoder = (stack if isinstance(stack, dict) else {} for stack in stacks)
    kinds = [stack.get("model_type") for stack in (encoder, decoder)]
    if kinds[0] != kinds[1] or kinds[0] not in KINDS:
        raise UserError(
            f"its encoder and decoder are {kinds[0]} and {kinds[1]}; two {' or two '.join(KINDS)} can be converted"
        )
    for name in _SHARED:
        if encoder.get(name) != decoder.get(name):
            raise UserError(f"its encoder and decoder differ in {name}: {encoder.get(name)} and {decoder.get(name)}")
    layout, settings = KINDS[kinds[0]]
    parts = {
        stack: {name.removeprefix(f"{stack}."): value for name, value in given.items() if name.startswith(f"{stack}.")}
        for stack in ("encoder", "decoder")
    }
    types = {
        POSITIONS: parts["encoder"].pop(_TYPES, None),
        DECODER_POSITIONS: parts["decoder"].pop(f"roberta.{_TYPES}", None),
    }
    parts["encoder"] = {name: value for name, value in parts["encoder"].items() if not name.startswith("pooler.")}
    state = TABLES["bert_encoder"].to_ours(parts["encoder"]) | TABLES[layout].to_ours(parts["decoder"])
    check_shapes(state)
    for positions, table in types.items():
        if table is not None and table.any():
            state[positions] = state[positions] + table[:1]
    options = to_options(settings, config | encoder, state)
    options["output_form"] = "dense" if "decoder.output.dense.weight" in state else "plain"
    options["share_embeddings"] = torch.equal(state[TOKENS], state[DECODER_TOKENS])
    if options["share_embeddings"]:
        del state[DECODER_TOKENS]
        state[BIAS] = state.pop(DECODER_BIAS)
    return state, options
