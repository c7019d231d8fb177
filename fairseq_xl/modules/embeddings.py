"""From token ids to the first hidden states. Shapes: B batch, T time, C channels, V vocabulary."""

import contextlib
from typing import Any, Iterator, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from fairseq_xl.errors import UserError
from fairseq_xl.modules.dropout import Dropout


class Bank(nn.Module):
    """What a vocabulary owns: the token table (V, C), and the output bias (V,) where it is also predicted."""

    def __init__(self, vocab_size: int, embed_dim: int, pad: int, bias: bool):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, embed_dim, padding_idx=pad)
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if bias else None
        self._uses = None  # inside of `one_gradient`: the table to look up in and the table to predict with

    @contextlib.contextmanager
    def one_gradient(self) -> Iterator[None]:
        """For a forward pass that looks tokens up and predicts: the table then has one gradient (V, C) throughout.

        Left to torch, lookup and prediction have one each, and a third is their sum.
        """
        self._uses = _TwoUses.apply(self.tokens.weight)
        try:
            yield
        finally:
            self._uses = None

    @property
    def output_table(self) -> Tensor:
        """The token table (V, C) as the output layer has to use it."""
        return self.tokens.weight if self._uses is None else self._uses[1]

    def forward(self, tokens: Tensor) -> Tensor:
        """Rows of the table: (B, T) -> (B, T, C)"""
        if self._uses is None:
            return self.tokens(tokens)
        table = self._uses[0]
        # of two lookups torch has to add sparse gradients, which it can't in float16 on CPU
        sparse = table.dtype != torch.float16 or table.device.type != "cpu"
        return F.embedding(tokens, table, self.tokens.padding_idx, sparse=sparse)


class _TwoUses(torch.autograd.Function):
    """A table twice. The gradient of the first, mostly sparse, is added to that of the second in place: it is ours."""

    @staticmethod
    def forward(ctx: Any, table: Tensor) -> Tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        return table.view_as(table), table.view_as(table)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_rows: Optional[Tensor], of_table: Optional[Tensor]) -> Optional[Tensor]:
        if of_rows is None or of_table is None:
            return of_table if of_rows is None else of_rows.to_dense()
        return of_table.add_(of_rows)


class Embeddings(nn.Module):
    """Tokens + learned positions + languages, LayerNorm, dropout (X1).

    Args:
        cfg: a `BackboneConfig`; `position_offset` unused rows come before position 0 (XLM-R files have 2)
        bank: looked up, not owned: its parameters are listed under the encoder or decoder that made it
        num_languages: rows of the language table, made when `cfg.language_embeddings` is `added`
        later_positions: positions after the last one that tokens have, for what comes next (G6)
    """

    def __init__(self, cfg: Any, bank: Bank, num_languages: int, later_positions: int = 0):
        super().__init__()
        self._bank = [bank]  # in a list, so that it is no submodule
        self.max_positions = cfg.max_positions
        self.position_offset = cfg.position_offset
        self.positions = nn.Embedding(cfg.position_offset + cfg.max_positions + later_positions, cfg.embed_dim)
        self.languages = None
        if cfg.language_embeddings == "added":
            if num_languages < 1:
                raise UserError(
                    "--language-embeddings added needs language symbols in the dictionary and it has none; "
                    "add them or use --language-embeddings none"
                )
            self.languages = nn.Embedding(num_languages, cfg.embed_dim)
        self.norm = nn.LayerNorm(cfg.embed_dim, cfg.layer_norm_eps)
        self.dropout = Dropout(cfg.dropout)

    @property
    def bank(self) -> Bank:
        """The bank that tokens are looked up in."""
        return self._bank[0]

    def forward(
        self,
        tokens: Tensor,
        positions: Optional[Tensor] = None,
        languages: Optional[Tensor] = None,
        first_position: int = 0,
        padding_mask: Optional[Tensor] = None,
        vectors: Optional[Tensor] = None,
        segments: Optional[Tensor] = None,
    ) -> Tensor:
        """(B, T) -> (B, T, C)

        Args:
            tokens: (B, T) ids
            positions: (B, T), counted from 0; None numbers the tokens that are not padding from `first_position`
            languages: (B, T) or (B, 1) language ids; not read by a model without language embeddings
            first_position: the position of the first token
            padding_mask: (B, T) bool, True at padding; None when nothing is padded
            vectors: (B, T, C) to use in place of the tokens' rows of the table
            segments: (B, T), which segment each token is in; not read by a model without segment embeddings

        Raises:
            UserError: more positions than `--max-positions`; no languages for a model that adds them
        """
        if positions is None:
            last = first_position + tokens.size(1)
            if last > self.max_positions:
                raise UserError(f"A sequence of {last} tokens is longer than --max-positions {self.max_positions}")
            if padding_mask is None:
                positions = torch.arange(first_position, last, device=tokens.device)
            else:  # by count, so that padding on the left shifts nothing
                positions = first_position + ((~padding_mask).cumsum(dim=1) - 1).clamp(min=0)
        rows = self.bank(tokens) if vectors is None else vectors
        hidden = self.placed(rows, self.positions(positions + self.position_offset), segments)
        if self.languages is not None:
            if languages is None:
                raise UserError("The model adds language embeddings and the batch doesn't say its languages")
            hidden = hidden + self.languages(languages)
        return self.dropout(self.norm(hidden))

    def placed(self, rows: Tensor, positions: Tensor, segments: Optional[Tensor]) -> Tensor:
        """Embeddings of tokens (B, T, C) and of their positions (B, T, C) or (T, C) -> their sum (B, T, C)."""
        return rows + positions
