"""EncoderDecoderModel of transformers, of two XLMRoberta or two BertGeneration, which this package exports."""

import logging

import torch

from fairseq_xl.checkpoints.layouts.base import IGNORED, Counterpart, Layout, Settings, part_names
from fairseq_xl.checkpoints.layouts.bert import BertStack, encoder_names
from fairseq_xl.checkpoints.layouts.name_mapping import Names, State, Table, prefixed
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


def _table(model: str, output: Names) -> Table:
    layer = f"decoder.{model}encoder.layer.{{n}}.crossattention."
    cross_attention: Names = {
        "decoder.layers.{n}.cross_attention.query.*": f"{layer}self.query.*",
        "decoder.layers.{n}.cross_attention.key_value.*": (f"{layer}self.key.*", f"{layer}self.value.*"),
        "decoder.layers.{n}.cross_attention.out.*": f"{layer}output.dense.*",
        "decoder.layers.{n}.cross_attention_norm.*": f"{layer}output.LayerNorm.*",
    }
    stacks = {**encoder_names("encoder."), **encoder_names(f"decoder.{model}", "decoder.")}
    head = {DECODER_BIAS: "decoder.lm_head.bias", **prefixed(output, "decoder.", "decoder.")}
    ignored = (*IGNORED, r"encoder\.pooler\..*")
    return Table({**stacks, **cross_attention, **head}, (), output_ties("decoder.", model), ignored)


class BertGeneration(BertStack):
    """A stack without token types and dense output layer."""

    model_types = ("bert-generation",)


#: model_type of both stacks -> their settings, names of the parameters
KINDS: dict[str, tuple[BertStack, Table]] = {
    "xlm-roberta": (XlmRoberta(), _table("roberta.", DENSE)),
    "bert-generation": (BertGeneration(), _table("bert.", {})),
}


@Layout.register
class EncoderDecoder(Layout):
    """Layout of EncoderDecoderModel.

    Two equal tables of token embeddings become one, which encoder and decoder share. The embedding of XLMRoberta's only
    token type is added to the positions.
    """

    name = "encoder-decoder"
    model_types = ("encoder-decoder",)
    compares_values = True

    def table(self, settings: Settings) -> Table:
        return KINDS[_check_stacks(settings)][1]

    def to_ours(self, weights: State, settings: Settings) -> State:
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
        stack, _ = KINDS[_check_stacks(settings)]
        return stack.options(settings | settings["encoder"], state) | {
            "output_form": "dense" if "decoder.output.dense.weight" in state else "plain",
            "share_embeddings": DECODER_TOKENS not in state,
        }

    def has_form(self, model: Own, head: str | None) -> bool:
        return model.has_decoder

    def obstacles(self, model: Own, head: str | None) -> dict[str, bool]:
        dense = model.options["output_form"] == "dense"
        pre = f"pre-LN layers with {'a dense output layer' if dense else 'two tables of token embeddings'}"
        return {pre: model.options["layer_norm"] == "pre"} | super().obstacles(model, head)

    def export(self, model: Own, head: str | None) -> Counterpart:
        """Two stacks of XLMRoberta for a dense output layer, of BertGeneration for a plain one."""
        dense = model.options["output_form"] == "dense"
        stack_layout, table = KINDS["xlm-roberta" if dense else "bert-generation"]
        positions = stack_layout.positions(model)
        state = {name: value for name, value in positions.items() if not name.startswith("heads.")}
        left_out = part_names(model.state.keys() - state.keys())
        if DECODER_TOKENS not in state:
            state[DECODER_TOKENS], state[DECODER_BIAS] = state[TOKENS], state.pop(BIAS)
            logger.info("%s: EncoderDecoderModel ties no token embeddings: they are written twice", model.path)
        config: Settings = {"model_type": "encoder-decoder", "is_encoder_decoder": True, "tie_word_embeddings": False}
        config |= {stack: stack_layout.config(model, state, stack) for stack in _TYPES}
        weights = table.to_theirs(state)
        if dense:  # parameters that XLMRoberta has and that change nothing
            zeros = state[TOKENS].new_zeros(model.options["embed_dim"], model.options["embed_dim"])
            weights |= {name: zeros[:1].clone() for name in _TYPES.values()}
            weights |= {"encoder.pooler.dense.weight": zeros, "encoder.pooler.dense.bias": zeros[0].clone()}
        return Counterpart(self, config | {"architectures": ["EncoderDecoderModel"]}, weights, left_out)


def _check_stacks(settings: Settings) -> str:
    """The model_type of both stacks; raises `UserError` for stacks of other types, and for stacks that differ."""
    encoder, decoder = (stack if isinstance(stack, dict) else {} for stack in map(settings.get, _TYPES))
    types = [stack.get("model_type") for stack in (encoder, decoder)]
    if types[0] != types[1] or types[0] not in KINDS:
        raise UserError(f"its encoder and decoder are {types[0]} and {types[1]}, not two {' or two '.join(KINDS)}")
    for name in _SHARED:
        if encoder.get(name) != decoder.get(name):
            raise UserError(f"its encoder and decoder differ in {name}: {encoder.get(name)} and {decoder.get(name)}")
    return str(types[0])
