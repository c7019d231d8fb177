"""Cross-lingual future n-gram prediction, xFNP (Liang et al. 2020, section 4.2): masked spans, n tokens at each step.

Legend: B batch, S tokens of the masked text, T tokens of its spans.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from fairseq_xl.data import Numbers
from fairseq_xl.data.corpora.base import Texts
from fairseq_xl.data.corpora.token_stream import TokenStream
from fairseq_xl.data.framing import pad_rows
from fairseq_xl.data.noise.masking import choose_spans, corrupt
from fairseq_xl.data.plan.epoch_plan import BatchSpec
from fairseq_xl.errors import UserError
from fairseq_xl.models.ngram_decoder import XLNgramDecoderModel
from fairseq_xl.objectives.base import Batch, BlockConfig, Objective, Term
from fairseq_xl.objectives.mlm import require_shares
from fairseq_xl.objectives.sequence import decoder_input, decoder_target, sequence_terms


@dataclass
class XFNPConfig(BlockConfig):
    """Options of `xfnp`; values as in Liang et al. 2020, section 6.1."""

    length: int = 512  # maximum length of a block, in tokens (Liang et al. 2020, section 6.1)
    alpha: float = 0.3  # exponent of the sampling shares (ours: the paper has 0.3 for MLM and TLM)
    span_every: int = 64  # each block of this many pieces has one span
    span_pieces: int = 9  # pieces of a span
    mask_token_prob: float = 0.8  # share of the tokens of spans that <mask> replaces
    random_token_prob: float = 0.1  # share of the tokens of spans that a random piece replaces
    # factors of the losses of the predicting streams, separated by commas: of the next token, of the one after it, …
    stream_weights: str = "1,1"
    mean_of_streams: bool = False  # divide the loss by the sum of the streams' weights

    def __post_init__(self) -> None:
        super().__post_init__()
        require_shares(self)
        self.require("span_every", self.span_every > 0, "more than 0")
        self.require("span_pieces", 0 < self.span_pieces <= self.span_every, f"from 1 to {self.span_every}")
        try:
            valid = min(self.weight_per_stream) >= 0 < sum(self.weight_per_stream) < float("inf")
        except ValueError:
            valid = False
        self.require("stream_weights", valid, "numbers joined by commas, none below 0 and not all 0")

    @property
    def weight_per_stream(self) -> list[float]:
        """The numbers of `stream_weights`."""
        return [float(weight) for weight in self.stream_weights.split(",")]


@Objective.register
class XFNP(Objective):
    """Predicts the concatenated masked spans of a block, and ``</s>``, n tokens at each step.

    The loss is Σ_i α_i Σ_t -log p(y_{t+i} | y_<t, X'), i = 0 … n - 1, divided by the number of tokens of all Y of the
    batch, with `mean_of_streams` also by Σ_i α_i. Each token of a span independently becomes ``<mask>``, a random piece
    or stays, as in the paper of ProphetNet. Special symbols are never masked: a span continues after them.
    """

    Config = XFNPConfig
    name = "xfnp"
    corpus_class = TokenStream
    restores_text = True
    model_class = XLNgramDecoderModel

    def heads(self, model_cfg: Any) -> dict[str, nn.Module]:
        """No modules; raises `UserError` unless the model has as many streams as there are weights."""
        if model_cfg.predicting_streams != len(self.cfg.weight_per_stream):
            raise UserError(
                f"xfnp.stream_weights={self.cfg.stream_weights} are {len(self.cfg.weight_per_stream)}, and the model "
                f"has --predicting-streams {model_cfg.predicting_streams}"
            )
        return {}

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of the losses of the streams; xfnp_1 predicts the next token."""
        return tuple(f"{self.name}_{stream + 1}" for stream in range(len(self.cfg.weight_per_stream)))

    def masked_positions(self, batch_spec: BatchSpec, corpus: Texts) -> np.ndarray:
        """Positions of the masked spans, (B, S) bool."""
        return self._choose_spans(batch_spec, corpus)[1]

    def _choose_spans(self, batch_spec: BatchSpec, corpus: Texts) -> tuple[Numbers, np.ndarray]:
        """The clean text (B, S) and the positions of its spans, (B, S) bool."""
        rows = [self.framing.sentence(block) for (block,) in self.texts(batch_spec, corpus)]
        original = pad_rows(rows, self.dictionary.pad())
        pieces = self.dictionary.is_piece[original]
        return original, choose_spans(pieces, batch_spec.keys, self.cfg.span_every, self.cfg.span_pieces)

    def collate(self, batch_spec: BatchSpec, corpus: Texts) -> Batch:
        """Masked tokens (B, S), languages (B, 1), decoder input and target (B, T)."""
        cfg, dictionary = self.cfg, self.dictionary
        original, is_masked = self._choose_spans(batch_spec, corpus)
        symbols, shares = (dictionary.mask_index, dictionary.pieces), (cfg.mask_token_prob, cfg.random_token_prob)
        tokens = corrupt(original, is_masked, batch_spec.keys, *symbols, *shares)
        spans = [[*row[span], dictionary.eos()] for row, span in zip(original, is_masked)]
        target = torch.from_numpy(pad_rows(spans, dictionary.pad()))
        languages = self.languages(batch_spec, corpus)
        return self.token_inputs(tokens) | {
            "languages": languages,
            "prev_output_tokens": decoder_input(target, dictionary.first_language + languages),
            **decoder_target(target, dictionary.pad()),
        }

    def loss(self, model: Any, batch: Batch) -> dict[str, Term]:
        """{"xfnp_1", "xfnp_2", …}: `Term` over the tokens that each stream predicts."""
        streams, weights = sequence_terms(model, batch), self.cfg.weight_per_stream
        whole = streams[0].count * (sum(weights) if self.cfg.mean_of_streams else 1)
        # the weights turn the means of terms into sums over one count: later streams predict fewer tokens
        return {
            name: term._replace(weight=weight * term.count / whole)
            for name, term, weight in zip(self.terms, streams, weights)
        }
