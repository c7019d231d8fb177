"""Conversion of state dicts between our names and the layouts of `layout_tables`. V symbols, C channels.

Beyond names, a layout may differ in shapes (BART's output bias is (1, V)) and in parameters that it lacks or has in
addition, which `to_ours` and `to_theirs` merge, add or leave out without a change of the outputs.
"""

import re

from fairseq_xl.checkpoints.layouts.layout_tables import DECODER_TOKENS, SEGMENTS, TABLES
from fairseq_xl.checkpoints.layouts.name_mapping import State
from fairseq_xl.checkpoints.layouts.weight_checks import check_shapes
from fairseq_xl.checkpoints.parameter_names import BIAS, POSITIONS, TOKENS
from fairseq_xl.errors import UserError

#: layout -> (pattern of a name, its replacement): earlier names, and models without the prefix of a head's model
_NAMES = {
    "fairseq_roberta": ((r"^decoder\.", "encoder."), (r"\bemb_layer_norm\.", "layernorm_embedding.")),
    "xlm-roberta": ((r"^(?=(embeddings|encoder|pooler)\.)", "roberta."),),
    "bert": ((r"^(?=(embeddings|encoder|pooler)\.)", "bert."),),
    "xlm": ((r"^module\.", ""), (r"^transformer\.", "")),
    "xlm_decoder": ((r"^module\.", ""), (r"^transformer\.", "")),
    "bart": ((r"^(?=(shared|encoder|decoder)\.)", "model."),),
}


def to_ours(layout: str, given: State) -> State:
    """Converts weights of a layout, a key of `TABLES`, to our names.

    - xlm-roberta: the embedding of the only token type is added to the positions.
    - fairseq_transformer, bart: an output bias of zeros is added if the file has none.
    - bert, xlm-roberta: the pooler is that of next-sentence prediction (bert), or is left out.

    Raises `UserError` for names that are missing or left over, output layers that are not tied, weights that are not
    finite or do not fit each other, and several token types of xlm-roberta.
    """
    for pattern, replacement in _NAMES.get(layout, ()):
        given = {re.sub(pattern, replacement, name): tensor for name, tensor in given.items()}
    if layout == "bart" and "final_logits_bias" in given:
        given = given | {"final_logits_bias": given["final_logits_bias"].reshape(-1)}
    state = TABLES[layout].to_ours(given)
    check_shapes(state)
    if layout == "xlm-roberta" and SEGMENTS in state:
        types = state.pop(SEGMENTS)
        if len(types) > 1:
            raise UserError(f"the weights have {len(types)} token types; only one can be converted")
        if not types.is_meta and types.any():
            state[POSITIONS] = state[POSITIONS] + types
    if layout in ("fairseq_transformer", "bart") and BIAS not in state:
        state[BIAS] = state[TOKENS].new_zeros(len(state[TOKENS]))
    return state


def to_theirs(layout: str, state: State) -> State:
    """Converts our weights to a layout, a key of `TABLES`: the inverse of `to_ours`.

    Raises `UserError` for parameters that the layout does not have, such as an output bias in fairseq's translation
    models.
    """
    state = dict(state)
    if layout == "xlm-roberta":
        state[SEGMENTS] = state[TOKENS].new_zeros(1, state[TOKENS].size(1))
    if layout == "fairseq_transformer" and not (state[BIAS].is_meta or state[BIAS].any()):
        del state[BIAS]
    if layout in ("roberta_decoder", "bert_decoder"):  # may be the encoder's table, which EncoderDecoderModel has twice
        state[DECODER_TOKENS] = state[DECODER_TOKENS].clone()
    given = TABLES[layout].to_theirs(state)
    if layout == "bart":
        given["final_logits_bias"] = given["final_logits_bias"][None]
    if layout == "xlm":  # as transformers has it; XLM's own files lack the prefix
        given = {
            name if name.startswith("pred_layer.") else f"transformer.{name}": each for name, each in given.items()
        }
    return given
