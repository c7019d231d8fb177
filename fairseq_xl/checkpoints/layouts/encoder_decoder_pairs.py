"""EncoderDecoderModel of transformers, of two XLMRoberta: the form of VECO's translation models."""

import logging

import torch

from fairseq_xl.checkpoints.layouts.base import IGNORED, Counterpart, Layout, Settings, part_names
from fairseq_xl.checkpoints.layouts.bert import BertStack, encoder_names
from fairseq_xl.checkpoints.layouts.name_mapping import State, Table, prefixed
from fairseq_xl.checkpoints.layouts.plugin_checkpoint import Own
from fairseq_xl.checkpoints.layouts.xlm_roberta import DENSE, XlmRoberta, output_ties
from fairseq_xl.checkpoints.parameter_names import BIAS, DECODER_BIAS, DECODER_TOKENS, TOKENS
from fairseq_xl.errors import UserError

logger = logging.getLogger(__name__)

#: entries of a stack's config that must be the same in both
_SHARED = [entry for entry in BertStack.config_entries if "dropout" not in entry]
#: stack -> the embedding of XLMRoberta's only token type
_TYPES = {
    "encoder": "encoder.embeddings.token_type_embeddings.weight",
    "decoder": "decoder.roberta.embeddings.token_type_embeddings.weight",
}


_LAYER = "decoder.roberta.encoder.layer.{n}.crossattention."
_NAMES = Table(
    {
        **encoder_names("encoder."),
        **encoder_names("decoder.roberta.", "decoder."),
        "decoder.layers.{n}.cross_attention.query.*": f"{_LAYER}self.query.*",
        "decoder.layers.{n}.cross_attention.key_value.*": (f"{_LAYER}self.key.*", f"{_LAYER}self.value.*"),
        "decoder.layers.{n}.cross_attention.out.*": f"{_LAYER}output.dense.*",
        "decoder.layers.{n}.cross_attention_norm.*": f"{_LAYER}output.LayerNorm.*",
        DECODER_BIAS: "decoder.lm_head.bias",
        **prefixed(DENSE, "decoder.", "decoder."),
    },
    ties=output_ties("decoder.", "roberta."),
    ignored=(*IGNORED, r"encoder\.pooler\..*"),
)
_STACK = XlmRoberta()


@Layout.register
class EncoderDecoder(Layout):
    """Layout of EncoderDecoderModel with a dense output layer.

    Two equal tables of token embeddings become one, which encoder and decoder share. The embedding of XLMRoberta's only
    token type is added to the positions.
    """

    name = "encoder-decoder"
    names = _NAMES
    model_types = ("encoder-decoder",)
    compares_values = True

    def to_ours(self, weights: State, settings: Settings) -> State:
        _check_stacks(settings)
        types = {name: value for name, value in weights.items() if name in _TYPES.values()}
        state = super().to_ours({name: value for name, value in weights.items() if name not in types}, settings)
        for stack, name in _TYPES.items():
            if name in types and types[name].any():
                positions = f"{stack}.embeddings.positions.weight"
                state[positions] = state[positions] + types[name][:1].float()
        if torch.equal(state[TOKENS], state[DECODER_TOKENS]):
            del state[DECODER_TOKENS]
            state[BIAS] = state.pop(DECODER_BIAS)
        return state

    def options(self, settings: Settings, state: State) -> Settings:
        shared = {"output_form": "dense", "share_embeddings": DECODER_TOKENS not in state}
        return _STACK.options(settings | settings["encoder"], state) | shared

    def has_form(self, model: Own, head: str | None) -> bool:
        return model.has_decoder and model.options["output_form"] == "dense"

    def obstacles(self, model: Own, head: str | None) -> dict[str, bool]:
        pre = model.options["layer_norm"] == "pre"
        return {"pre-LN layers with a dense output layer": pre} | super().obstacles(model, head)

    def export(self, model: Own, head: str | None) -> Counterpart:
        positions = _STACK.positions(model)
        state = {name: value for name, value in positions.items() if not name.startswith("heads.")}
        left_out = part_names(model.state.keys() - state.keys())
        if DECODER_TOKENS not in state:
            state[DECODER_TOKENS], state[DECODER_BIAS] = state[TOKENS], state.pop(BIAS)
            logger.info("%s: EncoderDecoderModel ties no token embeddings: they are written twice", model.path)
        config: Settings = {"model_type": "encoder-decoder", "is_encoder_decoder": True, "tie_word_embeddings": False}
        config |= {stack: _STACK.config(model, state, stack) for stack in _TYPES}
        # parameters that XLMRoberta has and that change nothing
        zeros = state[TOKENS].new_zeros(model.options["embed_dim"], model.options["embed_dim"])
        weights = self.to_theirs(state) | {name: zeros[:1].clone() for name in _TYPES.values()}
        weights |= {"encoder.pooler.dense.weight": zeros, "encoder.pooler.dense.bias": zeros[0].clone()}
        return Counterpart(self, config | {"architectures": ["EncoderDecoderModel"]}, weights, left_out)


def _check_stacks(settings: Settings) -> None:
    """Raises `UserError` for stacks of other types, and for stacks that differ."""
    encoder, decoder = (stack if isinstance(stack, dict) else {} for stack in map(settings.get, _TYPES))
    types = [stack.get("model_type") for stack in (encoder, decoder)]
    if types != [_STACK.model_types[0]] * 2:
        raise UserError(f"its encoder and decoder are {types[0]} and {types[1]}, not two {_STACK.model_types[0]}")
    for name in _SHARED:
        if encoder.get(name) != decoder.get(name):
            raise UserError(f"its encoder and decoder differ in {name}: {encoder.get(name)} and {decoder.get(name)}")
