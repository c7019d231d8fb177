"""Encoder-decoders that predict several tokens at each position. Shapes: B batch, S streams, T time, C channels."""

from functools import partial
from typing import Any, List, Optional

import torch
from torch import Tensor, nn

from fairseq_xl.errors import UserError, check_ranges
from fairseq_xl.models.beams import BeamCaches
from fairseq_xl.models.denoising import XLDenoisingModel
from fairseq_xl.models.encoder_decoder import Decoder, EncoderOut, IncrementalState
from fairseq_xl.models.model_options import NgramDecoderConfig
from fairseq_xl.modules.embeddings import TokenEmbeddings
from fairseq_xl.modules.ngram_attention import NgramAttention, Streams


class NgramDecoder(Decoder):
    """Decoder with a main stream of known tokens and `cfg.predicting_streams` predicting streams (ProphetNet).

    The input of predicting stream i is, at every position, row i of `stream_embeddings` plus the embedding of the
    predicted position; all streams go through the same layers. At position t stream i sees tokens 0 ... t of the input
    and predicts token t + i; ProphetNet's code stores that state at t + i - 1 (Yan et al. 2020).

    Generation computes the main stream and the first predicting stream only.
    """

    def __init__(self, cfg: NgramDecoderConfig, dictionary: Any, token_embeddings: TokenEmbeddings, shared: bool):
        check_ranges(NgramDecoderConfig, cfg)
        if not 2 <= cfg.relative_buckets < 2 * cfg.relative_distance:
            raise UserError(
                f"--relative-buckets {cfg.relative_buckets} should be from 2 to less than twice the "
                f"--relative-distance {cfg.relative_distance}"
            )
        attention = partial(NgramAttention, buckets=cfg.relative_buckets)
        # the extra positions are those predicted at the last token
        super().__init__(cfg, dictionary, token_embeddings, shared, attention, extra_positions=cfg.predicting_streams)
        self.cfg = cfg
        self.stream_embeddings = nn.Embedding(cfg.predicting_streams, cfg.embed_dim)

    def new_features(
        self, tokens: Tensor, languages: Optional[Tensor], first_position: int, packings: Any = None, **inputs: Any
    ) -> Tensor:
        """(B, T) -> hidden states (B, T, C) of the first predicting stream; the caches are the main stream's."""
        return self._streams(tokens, languages, first_position, predicting=1, **inputs)[:, 1]

    def next_features(self, tokens: Tensor, caches: BeamCaches) -> Tensor:
        """As `Decoder.next_features`: (B, K) -> hidden states (B, K, C) of the first predicting stream."""
        position, beam = self._next_position(caches), tokens.size(1)
        main = self.embeddings(tokens, position, caches.languages)
        rows = self.stream_embeddings.weight[:1].expand(*tokens.shape, -1)
        first = self.embeddings(tokens, position + 1, caches.languages, inputs_embeds=rows)
        mask, distances = caches.history_mask(), (self.cfg.relative_buckets, self.cfg.relative_distance)
        hidden_keys = torch.zeros(1, caches.length, device=tokens.device).bool() if mask is None else mask < 0
        attend = Streams.for_hypotheses(2, hidden_keys, *distances)
        return self._through_caches(torch.cat((main, first), dim=1), caches, attend)[:, beam:]

    def streams(
        self,
        prev_output_tokens: Tensor,
        encoder_out: Optional[EncoderOut] = None,
        incremental_state: Optional[IncrementalState] = None,
        *,
        predicting: Optional[int] = None,
    ) -> Tensor:
        """(B, T) -> hidden states (B, S, T, C): main stream, then the first `predicting` streams (None: all)."""
        languages = self._languages(prev_output_tokens, incremental_state)
        tokens = prev_output_tokens if incremental_state is None else prev_output_tokens[:, -1:]
        first_position = prev_output_tokens.size(1) - tokens.size(1)
        predicting = predicting or self.cfg.predicting_streams
        inputs = dict(encoder_out=encoder_out, incremental_state=incremental_state)
        return self._streams(tokens, languages, first_position, predicting, **inputs)

    def _streams(
        self, tokens: Tensor, languages: Optional[Tensor], first_position: int, predicting: int, **inputs: Any
    ) -> Tensor:
        """As `new_features`: (B, T) -> (B, S, T, C), main stream and the first `predicting` streams."""
        (batch, time), device = tokens.shape, tokens.device
        main = self.embeddings(tokens, languages=languages, first_position=first_position)
        ahead = torch.arange(1, 1 + predicting, device=device)[:, None]
        positions = (first_position + ahead + torch.arange(time, device=device)).flatten()
        rows = self.stream_embeddings.weight[:predicting].repeat_interleave(time, dim=0).expand(batch, -1, -1)
        hidden = torch.cat((main, self.embeddings(tokens, positions, languages, inputs_embeds=rows)), dim=1)
        distances = self.cfg.relative_buckets, self.cfg.relative_distance
        attend = Streams(1 + predicting, time, first_position + time, *distances, device)
        return self.through_layers(hidden, attend=attend, **inputs).unflatten(1, (1 + predicting, -1))


class XLNgramDecoderModel(XLDenoisingModel):
    """Encoder and decoder with shared token embeddings; the decoder predicts the next n tokens at each position (xFNP).

    Liang et al. 2020, section 4.2.

    Names in the state dict as in `XLDenoisingModel`, and `decoder.stream_embeddings.weight`,
    `decoder.layers.N.self_attention.relative.*`; `decoder.embeddings.positions.weight` has n more rows.
    """

    description = "an encoder-decoder that predicts several tokens at each position: --arch xl_xfnp_tiny and the like"
    decoder_class = NgramDecoder

    def teacher_forced(self, batch: Any) -> List[Tensor]:
        """Hidden states (B, T, C) of each predicting stream; the i-th, from 0 on, predicts ``target[:, t + i]``."""
        encoder_out = self.encoder.encode(
            batch["tokens"], batch["languages"], batch["padding_mask"], batch.get("packing")
        )
        return list(self.decoder.streams(batch["prev_output_tokens"], encoder_out).unbind(1)[1:])
