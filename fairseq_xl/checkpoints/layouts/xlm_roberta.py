"""XLM-R of transformers; RoBERTa and CamemBERT have the same layers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq_xl.checkpoints.layouts import published_vocabularies
from fairseq_xl.checkpoints.layouts.base import IGNORED, PAD, PIECES, SEQUENCES, Layout, Settings, has_pooler, required
from fairseq_xl.checkpoints.layouts.bert import BertStack, encoder_names
from fairseq_xl.checkpoints.layouts.name_mapping import Names, State, Table
from fairseq_xl.checkpoints.layouts.plugin_checkpoint import Own
from fairseq_xl.checkpoints.layouts.published_files import beside
from fairseq_xl.checkpoints.layouts.tokenizer_json import BYTE_LEVEL
from fairseq_xl.checkpoints.parameter_names import BIAS, POSITIONS, SEGMENTS, TOKENS
from fairseq_xl.errors import UserError

DENSE: Names = {"output.dense.*": "lm_head.dense.*", "output.norm.*": "lm_head.layer_norm.*"}
OUTPUT: Names = {BIAS: "lm_head.bias", **DENSE}


def output_ties(prefix: str, model: str) -> dict[str, str]:
    """Second names of the parameters of an output layer."""
    words = f"{prefix}{model}embeddings.word_embeddings.weight"
    return {f"{prefix}lm_head.decoder.weight": words, f"{prefix}lm_head.decoder.bias": f"{prefix}lm_head.bias"}


@Layout.register
class XlmRoberta(BertStack):
    """XLM-R's layout. The embedding of the only token type is added to the positions, the pooler is left out."""

    name = "xlm-roberta"
    names = Table(
        encoder_names("roberta."),
        (OUTPUT, {SEGMENTS: "roberta.embeddings.token_type_embeddings.weight"}),
        output_ties("", "roberta."),
        (*IGNORED, r"roberta\.pooler\.dense\..*"),
    )
    renames = ((r"^(?=(embeddings|encoder|pooler)\.)", "roberta."),)
    model_types: tuple[str, ...] = ("xlm-roberta", "roberta", "camembert")
    model_class, encoder_prefix = "XLMRoberta", "roberta."
    class_prefixes: Mapping[str, str] = {"roberta": "Roberta", "camembert": "Camembert"}
    position_offset = 2
    classifier_names = ("classifier.dense.", "classifier.out_proj.")
    token_types = 1
    summed = ("roberta.embeddings.position_embeddings.weight", "roberta.embeddings.token_type_embeddings.weight")
    form: Mapping[str, Any] = {"embedding_norm": "added"}

    def to_ours(self, weights: State, settings: Settings) -> State:
        state = super().to_ours(weights, settings)
        types = state.pop(SEGMENTS, None)
        if types is not None and len(types) > 1:
            raise UserError(f"the weights have {len(types)} token types; only one can be converted")
        if types is not None and not types.is_meta and types.any():
            state[POSITIONS] = state[POSITIONS] + types
        return state

    def options(self, settings: Settings, state: State) -> Settings:
        options = super().options(settings, state)
        if required(settings, "pad_token_id") != PAD:
            raise UserError(f"config.json has pad_token_id {settings['pad_token_id']}, where XLM-R has {PAD}")
        return options

    def vocabulary(self, count: int, file: Path, settings: Settings) -> published_vocabularies.Vocabulary:
        has_pieces = any(file.with_name(name).is_file() for name in self.vocabulary_files)
        if not has_pieces and file.with_name("merges.txt").is_file():
            raise UserError(f"its tokenizer, vocab.json and merges.txt, is {BYTE_LEVEL}")
        origin = beside(file, *self.vocabulary_files)
        if settings.get("model_type") == "camembert" and origin.name == PIECES:
            return published_vocabularies.from_camembert(count, origin)
        return published_vocabularies.from_pieces(count, origin)

    def has_form(self, model: Own, head: str | None) -> bool:
        if model.has_decoder or SEGMENTS in model.state or model.languages or model.options["output_form"] != "dense":
            return False
        fits = head != SEQUENCES or has_pooler(model)  # without it, XLM-R's classifier has a layer more
        return fits and super().has_form(model, head)

    def obstacles(self, model: Own, head: str | None) -> dict[str, bool]:
        reason = "causal attention in an encoder of XLM-R's form"
        return super().obstacles(model, head) | {reason: model.is_causal}

    def to_theirs(self, state: State) -> State:
        return super().to_theirs(state | {SEGMENTS: state[TOKENS].new_zeros(1, state[TOKENS].size(1))})
