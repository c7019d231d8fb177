"""Encoder-decoders whose decoder predicts several tokens at a step. Shapes: B batch, S streams, T time, C channels."""

from functools import partial
from typing import Any, List, Optional, Tuple

import torch
from torch import Tensor, nn

from fairseq_xl.errors import UserError, check_ranges
from fairseq_xl.models.config import FutureConfig
from fairseq_xl.models.denoising import XLDenoisingModel
from fairseq_xl.models.encoder_decoder import Decoder, EncoderOut
from fairseq_xl.modules.attention import IncrementalState
from fairseq_xl.modules.embeddings import Bank, Embeddings
from fairseq_xl.modules.layer import Layer
from fairseq_xl.modules.ngram_attention import NgramAttention, Streams


class FutureDecoder(Decoder):
    """A main stream over the known tokens and `cfg.predicting_streams` on top of it (ProphetNet; G6).

    A predicting stream begins, at every position, as its row of `futures` and the embedding of the position that it
    predicts; all streams go through the same layers. Here stream i at position t is the one that knows tokens 0 ... t
    and predicts number t + i of what follows the input's first token; ProphetNet's code has it at t + i - 1.

    Generation computes the main stream and predicting stream 1 alone.
    """

    def __init__(self, cfg: FutureConfig, dictionary: Any, bank: Bank, owns_bank: bool):
        check_ranges(FutureConfig, cfg)
        if not 2 <= cfg.relative_buckets < 2 * cfg.relative_distance:
            raise UserError(
                f"--relative-buckets {cfg.relative_buckets} should be from 2 to less than twice the "
                f"--relative-distance {cfg.relative_distance}"
            )
        super().__init__(cfg, dictionary, bank, owns_bank)
        self.cfg = cfg
        self.futures = nn.Embedding(cfg.predicting_streams, cfg.embed_dim)

    def make_embeddings(self, cfg: FutureConfig, bank: Bank) -> Embeddings:
        """Also of the positions that the last tokens' predicting streams predict."""
        return Embeddings(cfg, bank, self.dictionary.num_languages, later_positions=cfg.predicting_streams)

    def make_layer(self, cfg: FutureConfig) -> Layer:
        """A layer whose self-attention knows streams."""
        return Layer(cfg, cross_attention=True, self_attention=partial(NgramAttention, buckets=cfg.relative_buckets))

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: Optional[EncoderOut] = None,
        incremental_state: Optional[IncrementalState] = None,
    ) -> Tuple[Tensor, None]:
        """(B, T) -> hidden states (B, T, C) that predict the next token: those of predicting stream 1.

        As `Decoder.extract_features`; the caches hold keys and values of the main stream.
        """
        return self.streams(prev_output_tokens, encoder_out, incremental_state, predicting=1)[:, 1], None

    def streams(
        self,
        prev_output_tokens: Tensor,
        encoder_out: Optional[EncoderOut] = None,
        incremental_state: Optional[IncrementalState] = None,
        predicting: Optional[int] = None,
    ) -> Tensor:
        """(B, T) -> hidden states (B, S, T, C) of the main stream and the first `predicting` ones (None: all)."""
        known, count = prev_output_tokens.size(1), 1 + (predicting or self.cfg.predicting_streams)
        languages = self._languages(prev_output_tokens, incremental_state)
        tokens = prev_output_tokens if incremental_state is None else prev_output_tokens[:, -1:]
        hidden = self._embedded(tokens, languages, known - tokens.size(1), count)
        attend = Streams(
            count, tokens.size(1), known, self.cfg.relative_buckets, self.cfg.relative_distance, tokens.device
        )
        hidden = self.through_layers(hidden, encoder_out, incremental_state, attend)
        return hidden.unflatten(1, (count, -1))

    def _embedded(self, tokens: Tensor, languages: Optional[Tensor], first_position: int, count: int) -> Tensor:
        """New tokens (B, T), the first one's position -> the first states of all streams, (B, S*T, C)."""
        batch, time = tokens.shape
        main = self.embeddings(tokens, languages=languages, first_position=first_position)
        ahead = torch.arange(1, count, device=tokens.device)[:, None]
        positions = (first_position + ahead + torch.arange(time, device=tokens.device)).flatten()
        rows = self.futures.weight[: count - 1].repeat_interleave(time, dim=0).expand(batch, -1, -1)
        return torch.cat((main, self.embeddings(tokens, positions, languages, vectors=rows)), dim=1)


class XLFutureModel(XLDenoisingModel):
    """Encoder and decoder with one bank, whose decoder predicts the next n tokens at every step (xFNP, G6).

    Names in the state dict as in `XLDenoisingModel`, and `decoder.futures.weight`,
    `decoder.layers.N.self_attention.relative.*`; `decoder.embeddings.positions.weight` has n more rows.
    """

    described = "an encoder-decoder that predicts several tokens at a step: --arch xl_xfnp_tiny and the like"

    @staticmethod
    def make_decoder(cfg: FutureConfig, dictionary: Any, bank: Bank, owns_bank: bool) -> FutureDecoder:
        """The decoder on the encoder's bank."""
        return FutureDecoder(cfg, dictionary, bank, owns_bank)

    def teacher_forced(self, batch: Any) -> List[Tensor]:
        """Hidden states (B, T, C) of each predicting stream; number i, from 0 on, predicts ``target[:, t + i]``."""
        encoder_out = self.encoder.encode(batch["tokens"], batch["languages"], batch["padding_mask"])
        return list(self.decoder.streams(batch["prev_output_tokens"], encoder_out).unbind(1)[1:])
