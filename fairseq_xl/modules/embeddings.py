"""Token, position and language embeddings. Shapes: B batch, T time, C channels, V vocabulary."""

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from fairseq_xl.errors import UserError
from fairseq_xl.modules.dropout import Dropout

#: segments of an input: a sentence or the first of a pair, and the second of a pair
SEGMENTS = 2


class TokenEmbeddings(nn.Module):
    """The embeddings of a vocabulary (V, C), and the output bias (V,) where the model also predicts its tokens."""

    def __init__(self, vocab_size: int, embed_dim: int, pad: int, output_bias: bool):
        super().__init__()
        self.table = nn.Embedding(vocab_size, embed_dim, padding_idx=pad)
        self.output_bias = nn.Parameter(torch.zeros(vocab_size)) if output_bias else None
        self._uses = None  # inside of `one_gradient`: the table for lookup and the table for prediction

    @contextlib.contextmanager
    def one_gradient(self) -> Iterator[None]:
        """Context of a forward pass with lookup and prediction: the table has one gradient (V, C) throughout.

        torch itself would make a gradient for each of them, and a third for their sum.
        """
        self._uses = _TwoUses.apply(self.table.weight)
        try:
            yield
        finally:
            self._uses = None

    @property
    def output_table(self) -> Tensor:
        """The table (V, C) that the output layer uses."""
        return self.table.weight if self._uses is None else self._uses[1]

    def forward(self, tokens: Tensor) -> Tensor:
        """Rows of the table: (B, T) -> (B, T, C)"""
        if self._uses is None:
            return self.table(tokens)
        table = self._uses[0]
        if table.dtype == torch.float16 and table.device.type == "cpu":
            # two lookups would add sparse gradients, which torch cannot do in float16 on CPU
            return F.embedding(tokens, table, self.table.padding_idx)
        return _Rows.apply(table, tokens, self.table.padding_idx)


class _TwoUses(torch.autograd.Function):
    """Returns a table twice. The backward pass adds the first, mostly sparse gradient to the second one in place."""

    @staticmethod
    def forward(ctx: Any, table: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the table (V, C) twice: for lookup and for prediction."""
        ctx.set_materialize_grads(False)
        return table.view_as(table), table.view_as(table)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_rows: Tensor | None, of_table: Tensor | None) -> Tensor | None:
        """Adds the gradient of lookup, which may be sparse, to that of prediction: (V, C)."""
        if of_rows is None or of_table is None:
            return of_table if of_rows is None else of_rows.to_dense()
        return of_table.add_(of_rows)


class _Rows(torch.autograd.Function):
    """Rows of a table, with a sparse gradient; that of the row of padding is zero.

    torch's sparse gradient leaves out the padding, and waits for a GPU to count the rest: at the end of the backward
    pass, so that the kernels of the optimizer could not be queued while it runs.
    """

    @staticmethod
    def forward(ctx: Any, table: Tensor, tokens: Tensor, pad: int) -> Tensor:
        """Table (V, C) and tokens (...) -> (..., C)"""
        ctx.save_for_backward(tokens)
        ctx.pad, ctx.table_shape = pad, table.shape
        return F.embedding(tokens, table)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """Returns the gradient of the table, sparse (V, C)."""
        (tokens,) = ctx.saved_tensors
        rows = gradient.masked_fill((tokens == ctx.pad).unsqueeze(-1), 0).reshape(-1, gradient.size(-1))
        of_table = torch.sparse_coo_tensor(tokens.reshape(1, -1), rows, ctx.table_shape, check_invariants=False)
        return of_table, None, None


class PositionEmbeddings(nn.Embedding):
    """Learned position embeddings (rows, C); `init_weights` initializes them.

    Args:
        cfg: a `BackboneConfig`; `position_offset` unused rows precede position 0 (XLM-R's files have 2)
        extra_positions: positions after `cfg.max_positions`
    """

    def __init__(self, cfg: Any, extra_positions: int):
        super().__init__(cfg.position_offset + cfg.max_positions + extra_positions, cfg.embed_dim)
        self.offset, self.max_positions = cfg.position_offset, cfg.max_positions
        self.sinusoidal = str(cfg.position_init) == "sinusoidal"


class Embeddings(nn.Module):
    """Sum of token, learned position, segment and language embeddings, then LayerNorm and dropout.

    Lample & Conneau 2019, sections 3.4 and 5.1.

    Args:
        cfg: a `BackboneConfig`
        token_embeddings: used, not owned: their parameters belong to the encoder or decoder that made them
        num_languages: rows of the language embeddings, which exist if `cfg.language_embeddings` is `added`
        extra_positions: positions after `cfg.max_positions`, for predicted tokens that are not input
    """

    def __init__(self, cfg: Any, token_embeddings: TokenEmbeddings, num_languages: int, extra_positions: int = 0):
        super().__init__()
        self._token_embeddings = [token_embeddings]  # in a list, so that it is not a submodule
        self.max_positions = cfg.max_positions
        self.position_offset = cfg.position_offset
        self.positions = PositionEmbeddings(cfg, extra_positions)
        self.scale = math.sqrt(cfg.embed_dim) if str(cfg.embedding_scale) == "sqrt" else None
        self.segments = nn.Embedding(SEGMENTS, cfg.embed_dim) if str(cfg.segment_embeddings) == "added" else None
        self.languages = None
        if cfg.language_embeddings == "added":
            if num_languages < 1:
                raise UserError(
                    "--language-embeddings added needs language symbols in the dictionary, and it has none; "
                    "add them or use --language-embeddings none"
                )
            self.languages = nn.Embedding(num_languages, cfg.embed_dim)
        self.norm = nn.LayerNorm(cfg.embed_dim, cfg.layer_norm_eps)
        self.dropout = Dropout(cfg.dropout)

    @property
    def token_embeddings(self) -> TokenEmbeddings:
        """The token embeddings."""
        return self._token_embeddings[0]

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor | None = None,
        languages: Tensor | None = None,
        first_position: int = 0,
        padding_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        segments: Tensor | None = None,
    ) -> Tensor:
        """(B, T) -> (B, T, C)

        Args:
            tokens: (B, T) ids
            positions: (B, T), counted from 0; None numbers the tokens that are not padding from `first_position`
            languages: (B, T) or (B, 1) language ids; a model without language embeddings ignores them
            first_position: the position of the first token
            padding_mask: (B, T) bool, True at padding; None when nothing is padded
            inputs_embeds: (B, T, C), used in place of the token embeddings
            segments: (B, T), the segment of each token; a model without segment embeddings ignores them

        Raises:
            UserError: more positions than `--max-positions`; no languages for a model that adds them
        """
        if positions is None:
            last = first_position + tokens.size(1)
            if last > self.max_positions:
                raise UserError(f"A sequence of {last} tokens is longer than --max-positions {self.max_positions}")
            if padding_mask is None:
                positions = torch.arange(first_position, last, device=tokens.device)
            else:  # counted, so that padding on the left shifts nothing
                positions = first_position + ((~padding_mask).cumsum(dim=1) - 1).clamp(min=0)
        if inputs_embeds is None:
            inputs_embeds = self.token_embeddings(tokens)
        if self.scale is not None:
            inputs_embeds = inputs_embeds * self.scale
        hidden = self.add_positions(inputs_embeds, self.positions(positions + self.position_offset), segments)
        if self.languages is not None:
            if languages is None:
                raise UserError("The model adds language embeddings, and the batch doesn't say its languages")
            hidden = hidden + self.languages(languages)
        return self.dropout(self.norm(hidden))

    def add_positions(self, inputs_embeds: Tensor, positions: Tensor, segments: Tensor | None) -> Tensor:
        """Token embeddings (B, T, C), position embeddings (B, T, C) or (T, C), segments (B, T) -> sum (B, T, C).

        Without `segments` all tokens are in the first segment.
        """
        if self.segments is None:
            return inputs_embeds + positions
        return inputs_embeds + self.of_segments(segments) + positions

    def of_segments(self, segments: Tensor | None) -> Tensor:
        """Segment embeddings: segments (B, T) -> (B, T, C); None, all tokens in the first segment -> (C,)."""
        assert self.segments is not None
        return self.segments.weight[0] if segments is None else self.segments(segments)
