"""Embeddings, and initial weights of modules. Shapes: B batch, T time, C channels, V vocabulary."""

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

#: tokens (B, T) of lookups and the gradients of their rows (B, T, C)
Lookups = list[tuple[Tensor, Tensor]]
#: segments of an input: a sentence or the first of a pair, and the second of a pair
SEGMENTS = 2


class TokenEmbeddings(nn.Module):
    """The embeddings of a vocabulary (V, C), and the output bias (V,) where the model also predicts its tokens."""

    def __init__(self, vocab_size: int, embed_dim: int, pad: int, output_bias: bool):
        super().__init__()
        self.table = nn.Embedding(vocab_size, embed_dim, padding_idx=pad)  # named `table` in checkpoints
        self.output_bias = nn.Parameter(torch.zeros(vocab_size)) if output_bias else None
        # inside of `one_gradient`: the matrix for lookup, the matrix for prediction, and the gradients of lookups
        self._uses: tuple[Tensor, Tensor, Lookups] | None = None

    @contextlib.contextmanager
    def one_gradient(self) -> Iterator[None]:
        """Context of a forward pass in which lookup and prediction share one gradient (V, C) of the embedding matrix.

        torch itself would make a gradient for each of them, and a third for their sum.
        """
        lookups: Lookups = []
        self._uses = *_TwoUses.apply(self.table.weight, lookups), lookups
        try:
            yield
        finally:
            self._uses = None

    @property
    def output_matrix(self) -> Tensor:
        """The embedding matrix (V, C) that the output layer uses."""
        return self.table.weight if self._uses is None else self._uses[1]

    def forward(self, tokens: Tensor) -> Tensor:
        """Rows of the embedding matrix: (B, T) -> (B, T, C)"""
        if self._uses is None:
            return self.table(tokens)
        matrix, _, lookups = self._uses
        return _Lookup.apply(tokens, matrix, self.table.padding_idx, lookups)


class _Lookup(torch.autograd.Function):
    """Rows of the embedding matrix, whose gradient `_TwoUses` adds.

    A gradient with a row for each symbol would be mostly zeros. torch's sparse gradient counts the tokens that are not
    padding, which waits for the GPU.
    """

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, matrix: Tensor, pad: int, lookups: Lookups) -> Tensor:
        """(B, T), (V, C) -> (B, T, C)"""
        ctx.save_for_backward(tokens)
        ctx.pad, ctx.lookups = pad, lookups
        return F.embedding(tokens, matrix)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, ...]:
        """Appends tokens (B, T) and the gradients of their rows (B, T, C), 0 at padding, to `lookups`."""
        (tokens,) = ctx.saved_tensors
        ctx.lookups.append((tokens, gradient.masked_fill((tokens == ctx.pad)[..., None], 0)))
        return None, None, None, None


class _TwoUses(torch.autograd.Function):
    """Two views of the embedding matrix; the backward pass adds the gradients of lookups to that of prediction."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, lookups: Lookups) -> tuple[Tensor, Tensor]:
        """Returns the embedding matrix (V, C) twice: for `_Lookup` and for prediction."""
        ctx.set_materialize_grads(False)
        ctx.shape, ctx.lookups = matrix.shape, lookups
        return matrix.view_as(matrix), matrix.view_as(matrix)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: None, grad_matrix: Tensor | None) -> tuple[Tensor | None, None]:
        """Adds the gradients of lookups to the gradient of prediction: (V, C)."""
        for tokens, grad_rows in ctx.lookups:
            grad_matrix = grad_rows.new_zeros(ctx.shape) if grad_matrix is None else grad_matrix
            grad_matrix.index_add_(0, *_sum_rows(tokens.flatten(), grad_rows.flatten(0, -2)))
        ctx.lookups.clear()
        return grad_matrix, None


def _sum_rows(tokens: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Sums rows (N, C) in 16 bits of equal tokens (N,), in float32 -> distinct tokens (N,), their sums (N, C).

    Zeros fill both up to N: counting the distinct tokens would wait for the GPU. Adding thousands of rows to a row of
    the gradient in 16 bits would round after each of them. Rows in float32 are returned as they are.
    """
    if rows.dtype not in (torch.float16, torch.bfloat16):
        return tokens, rows
    ordered, order = tokens.sort()
    is_new = torch.cat((ordered.new_zeros(1), (ordered[1:] != ordered[:-1]).long()))
    indices = is_new.cumsum(dim=0)  # (N,), the index of each row's token among the distinct tokens
    sums = torch.zeros_like(rows, dtype=torch.float32).index_add_(0, indices, rows[order].float())
    return torch.zeros_like(tokens).scatter_(0, indices, ordered), sums.type_as(rows)


class PositionEmbeddings(nn.Embedding):
    """Learned positions (rows, C): `cfg.position_offset` unused ones first (XLM-R: 2), `extra_positions` last."""

    def __init__(self, cfg: Any, extra_positions: int):
        super().__init__(cfg.position_offset + cfg.max_positions + extra_positions, cfg.embed_dim)
        self.offset, self.max_positions = cfg.position_offset, cfg.max_positions
        self.sinusoidal = str(cfg.position_init) == "sinusoidal"
        self.scale = math.sqrt(cfg.embed_dim) if str(cfg.embedding_scale) == "sqrt" else 1.0  # of token embeddings


class Embeddings(nn.Module):
    """Sum of token, learned position, segment and language embeddings, then LayerNorm and dropout.

    Lample & Conneau 2019, sections 3.4 and 5.1.

    Args:
        cfg: a `BackboneConfig`; without LayerNorm if `embedding_norm` is `none`
        token_embeddings: their parameters belong to the encoder or decoder
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
        self.segments = nn.Embedding(SEGMENTS, cfg.embed_dim) if str(cfg.segment_embeddings) != "none" else None
        self.has_one_segment = str(cfg.segment_embeddings) == "first"
        self.languages = None
        if cfg.language_embeddings == "added":
            if num_languages < 1:
                raise UserError(
                    "--language-embeddings added needs language symbols in the dictionary, and it has none; "
                    "add them or use --language-embeddings none"
                )
            self.languages = nn.Embedding(num_languages, cfg.embed_dim)
        norm = nn.LayerNorm(cfg.embed_dim, cfg.layer_norm_eps)
        self.norm = norm if str(cfg.embedding_norm) == "added" else nn.Identity()
        self.dropout = Dropout(cfg.dropout)

    @property
    def token_embeddings(self) -> TokenEmbeddings:
        return self._token_embeddings[0]

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor | int | None = None,
        languages: Tensor | None = None,
        first_position: int = 0,
        padding_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        segments: Tensor | None = None,
    ) -> Tensor:
        """(B, T) -> (B, T, C)

        Args:
            tokens: (B, T) ids
            positions: (B, T), counted from 0, or one position of all tokens; None numbers the tokens that are not
                padding from `first_position`
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
        rows = positions + self.position_offset
        position_embeddings = self.positions.weight[rows] if isinstance(rows, int) else self.positions(rows)
        hidden = self.add_positions(inputs_embeds, position_embeddings, segments)
        if self.languages is not None:
            if languages is None:
                raise UserError("The model adds language embeddings, and the batch doesn't say its languages")
            hidden = hidden + self.languages(languages)
        return self.dropout(self.norm(hidden))

    def add_positions(self, inputs_embeds: Tensor, positions: Tensor, segments: Tensor | None) -> Tensor:
        """Tokens (B, T, C), positions (…, C), segments (B, T), None: all first -> their sum (B, T, C)."""
        if self.segments is None:
            return inputs_embeds + positions
        return inputs_embeds + self.embed_segments(segments) + positions

    def embed_segments(self, segments: Tensor | None) -> Tensor:
        """Segment embeddings: segments (B, T) -> (B, T, C); None, or with `first`, the first one's (C,)."""
        assert self.segments is not None
        return self.segments.weight[0] if segments is None or self.has_one_segment else self.segments(segments)


def init_weights(module: nn.Module, std: float) -> None:
    """Initializes a module as BERT does, for `model.apply`: weights N(0, std^2), biases and the padding row zero.

    All models do so, which makes them comparable; XLM's code has N(0, 1/C) for embeddings and torch's defaults
    elsewhere. LayerNorms keep torch's ones and zeros. `PositionEmbeddings` may start from sinusoids.
    """
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=std)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
    if isinstance(module, nn.Embedding) and module.padding_idx is not None:
        nn.init.zeros_(module.weight[module.padding_idx])
    if isinstance(module, PositionEmbeddings) and module.sinusoidal:
        table = module.weight.data[module.offset :]
        # a sinusoid's mean square is 1/2: the factor gives the table the size of the token embeddings
        table.copy_(sinusoids(len(table), table.size(1), module.max_positions) * math.sqrt(2) * std * module.scale)


def sinusoids(positions: int, channels: int, max_wavelength: float) -> Tensor:
    """Sines, then cosines, of the positions (Vaswani et al. 2017, section 3.5): (positions, C).

    Wavelengths are a geometric series from 2π to `max_wavelength`; with the paper's 20000π most channels are nearly
    constant over a short input.
    """
    half = (channels + 1) // 2
    wavelengths = torch.logspace(math.log2(2 * math.pi), math.log2(max_wavelength), half, base=2)
    angles = torch.arange(positions)[:, None] * 2 * math.pi / wavelengths  # (positions, half)
    return torch.cat((angles.sin(), angles.cos()), dim=1)[:, :channels]
