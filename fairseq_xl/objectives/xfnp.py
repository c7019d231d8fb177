"""Cross-lingual future n-gram prediction (Unicoder for XGLUE, G6): masked spans, several tokens of them at a step.

Legend: B batch, S tokens of the masked text, T of the spans.
"""

from dataclasses import dataclass

import torch

from fairseq_xl.data.framing import decoder_input, pad_rows, padding_mask
from fairseq_xl.data.noising import choose_spans, corrupt
from fairseq_xl.errors import UserError
from fairseq_xl.models.future import XLFutureModel
from fairseq_xl.objectives.base import Objective, ObjectiveConfig
from fairseq_xl.objectives.mlm import require_shares
from fairseq_xl.objectives.sequence import sequence_terms


@dataclass
class XFNPConfig(ObjectiveConfig):
    """Options of `xfnp`."""

    length: int = 512  # most tokens of a stream (G6)
    alpha: float = 0.3  # (G2)
    span_every: int = 64  # pieces that one span is masked in (G6)
    span_pieces: int = 9  # pieces of a span (G6)
    mask_token_prob: float = 0.8  # share of the spans' tokens replaced by <mask> (G6)
    random_token_prob: float = 0.1  # share of the spans' tokens replaced by a random piece (G6)
    stream_weights: str = (
        "1,1"  # factor of each predicting stream's loss: those of the next token and of later ones (G6)
    )
    mean_of_streams: bool = False  # divide the loss by the sum of the streams' weights

    def __post_init__(self):
        super().__post_init__()
        require_shares(self)
        self.require("span_every", self.span_every > 0, "more than 0")
        self.require("span_pieces", 0 < self.span_pieces <= self.span_every, f"from 1 to {self.span_every}")
        try:
            valid = min(self.weights) >= 0 < sum(self.weights) < float("inf")
        except ValueError:
            valid = False
        self.require("stream_weights", valid, "numbers joined by commas, none below 0 and not all 0")

    @property
    def weights(self):
        """Those of `stream_weights`, as numbers."""
        return [float(weight) for weight in self.stream_weights.split(",")]


@Objective.register
class XFNP(Objective):
    """An encoder reads a block with a span masked in every 64 pieces, a decoder predicts the spans, joined, and </s>.

    The loss is Σ_i α_i Σ_t -log p(y_{t+i} | y_<t, X'), i = 0 … n - 1, over the number of tokens that all Y of the batch
    have; with `mean_of_streams` also over Σ_i α_i. Whether a token of a span becomes <mask>, stays or becomes another
    is drawn for each, as ProphetNet's paper has it. Special symbols are never masked: a span goes on behind them.
    """

    Config = XFNPConfig
    name = "xfnp"
    reads = "monolingual"
    model_class = XLFutureModel

    def heads(self, model_cfg):
        """No modules; `UserError` if the model has another number of streams than there are weights."""
        if model_cfg.predicting_streams != len(self.cfg.weights):
            raise UserError(
                f"xfnp.stream_weights={self.cfg.stream_weights} are {len(self.cfg.weights)}, and the model has "
                f"--predicting-streams {model_cfg.predicting_streams}"
            )
        return {}

    @property
    def terms(self):
        """Names of the streams' losses: xfnp_1 is that of the next token."""
        return tuple(f"{self.name}_{number + 1}" for number in range(len(self.cfg.weights)))

    def gaps(self, draws, source):
        """The places of the masked spans, (B, S) bool."""
        return self._chosen(draws, source)[1]

    def _chosen(self, draws, source):
        """The text before it is masked, (B, S), and the places of its spans, (B, S) bool."""
        rows = [self.framing.sentence(block) for (block,) in source.texts(draws.examples, self.example_length)]
        original = pad_rows(rows, self.dictionary.pad())
        pieces = self.dictionary.is_piece[original]
        return original, choose_spans(pieces, draws.keys, self.cfg.span_every, self.cfg.span_pieces)

    def collate(self, draws, source):
        """Masked tokens (B, S), languages (B, 1), what the decoder reads and its target (B, T)."""
        cfg, dictionary = self.cfg, self.dictionary
        original, chosen = self._chosen(draws, source)
        tokens = corrupt(
            original, chosen, draws.keys, dictionary.mask_index, dictionary.pieces, cfg.mask_token_prob,
            cfg.random_token_prob,
        )  # fmt: skip
        spans = [[*row[masked], dictionary.eos()] for row, masked in zip(original, chosen)]
        target = torch.from_numpy(pad_rows(spans, dictionary.pad()))
        languages = self.languages(draws, source)
        return {
            "tokens": torch.from_numpy(tokens),
            "padding_mask": padding_mask(original, dictionary.pad()),
            "languages": languages,
            "prev_output_tokens": decoder_input(target, dictionary.first_language + languages),
            "target": target,
        }

    def loss(self, model, batch):
        """{"xfnp_1", "xfnp_2", …}: `Term` over the tokens that each stream predicts."""
        streams, weights = sequence_terms(model, batch), self.cfg.weights
        whole = streams[0].count * (sum(weights) if self.cfg.mean_of_streams else 1)
        # a stream's sum counts as it is, though a term is a mean: later streams predict fewer tokens
        return {
            name: term._replace(weight=weight * term.count / whole)
            for name, term, weight in zip(self.terms, streams, weights)
        }
