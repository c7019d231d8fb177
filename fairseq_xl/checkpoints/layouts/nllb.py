"""NLLB of transformers (NLLB Team 2022), whose class is M2M100: mBART without LayerNorm of the embeddings. C channels.

The positions are sinusoids, which files lack. The source is ``[xx] x </s>``, the decoder's input ``</s> [xx] y``.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_xl.checkpoints.layouts import base, published_vocabularies
from fairseq_xl.checkpoints.layouts.bart import Bart
from fairseq_xl.checkpoints.layouts.base import IGNORED, TORCH_EPS, Layout, Settings, required
from fairseq_xl.checkpoints.layouts.name_mapping import Names, State
from fairseq_xl.checkpoints.layouts.plugin_checkpoint import Own
from fairseq_xl.checkpoints.parameter_names import BIAS, DECODER_POSITIONS, POSITIONS, TOKENS
from fairseq_xl.checkpoints.stacks import count_layers
from fairseq_xl.errors import UserError, quoted

MOST_POSITIONS = 1 << 16  # the released models have 1,024
_FROZEN = (POSITIONS, DECODER_POSITIONS, BIAS)
_NORMS = tuple(f"{stack}.embeddings.norm.*" for stack in ("encoder", "decoder"))
_NAMES: Names = {key: names for key, names in Bart.names.names.items() if key not in (*_FROZEN, *_NORMS)}


@Layout.register
class Nllb(Bart):
    """NLLB's layout: pre-LN, one table of tokens, no output bias."""

    name = "nllb"
    names = replace(Bart.names, names=_NAMES, ignored=(*IGNORED, r"model\.(en|de)coder\.embed_positions\.weights"))
    model_types = ("m2m_100",)
    model_classes: Mapping[str, str] = {"m2m_100": "M2M100"}
    framing = "nllb"
    form: Mapping[str, Any] = {"layer_norm": "pre", "embedding_norm": "none", "decoder_start": "eos"}
    constants: Mapping[str, Any] = {"layer_norm_eps": TORCH_EPS, **form}
    expressed = (*Layout.expressed, "embedding_scale")
    frozen = _FROZEN

    def to_ours(self, weights: State, settings: Settings) -> State:
        state = super().to_ours(weights, settings)
        positions = required(settings, "max_position_embeddings")
        if type(positions) is not int or not 0 < positions <= MOST_POSITIONS:
            raise UserError(f"max_position_embeddings {quoted(positions)}: 1 to {MOST_POSITIONS} are expected")
        table = sinusoids(positions + self.position_offset, state[TOKENS].size(1)).to(state[TOKENS].device)
        return state | {POSITIONS: table, DECODER_POSITIONS: table.clone()}

    def is_scaled(self, settings: Settings, pre: bool) -> bool:
        return bool(settings.get("scale_embedding", True))

    def vocabulary(self, count: int, file: Path, settings: Settings) -> published_vocabularies.Vocabulary:
        if not file.with_name(base.TOKENIZER).is_file():
            raise UserError(
                "its tokenizer is M2M100's; NLLB's can be converted: tokenizer.json with codes like eng_Latn"
            )
        return published_vocabularies.from_nllb(count, file.with_name(base.TOKENIZER))

    def obstacles(self, model: Own, head: str | None) -> dict[str, bool]:
        state = self.positions(model)
        sides = (state[name] for name in (POSITIONS, DECODER_POSITIONS))
        is_fixed, training = (
            all(torch.equal(side, sinusoids(*side.shape)) for side in sides),
            "training without --freeze",
        )
        return super().obstacles(model, head) | {
            "two tables of token embeddings in the form of nllb": BIAS not in state,
            f"positions in the form of nllb that are not sinusoids, as after {training}": not is_fixed,
            f"an output bias in the form of nllb, as after {training}": BIAS in state and bool(state[BIAS].any()),
        }

    def to_theirs(self, state: State) -> State:
        return self.names.to_theirs({name: value for name, value in state.items() if name not in _FROZEN})

    def config(self, model: Own, state: State, stack: str = "encoder") -> Settings:
        config = Layout.config(self, model, state, stack)
        config |= {f"{name}_layers": count_layers(state, name) for name in ("encoder", "decoder")}
        config["max_position_embeddings"] -= self.position_offset
        return config | {"is_encoder_decoder": True, "decoder_start_token_id": base.EOS, "tie_word_embeddings": True}


def sinusoids(rows: int, channels: int) -> Tensor:
    """Sines, then cosines, of the numbers of the rows (Vaswani et al. 2017, section 3.5), 0 for padding: (rows, C)."""
    half = channels // 2
    frequencies = torch.exp(torch.arange(half).float() * -(math.log(10000) / max(half - 1, 1)))
    angles = torch.arange(rows).float()[:, None] * frequencies
    table = torch.cat((angles.sin(), angles.cos(), angles.new_zeros(rows, channels % 2)), dim=1)
    table[base.PAD] = 0
    return table
