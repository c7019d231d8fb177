"""Attention functions, and the self-attention and cross-attention of a layer with projections and caches.

Shapes: B batch, T queries, S keys, C channels, H heads, D = C / H channels per head.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from fairseq_xl.errors import UserError
from fairseq_xl.modules.dropout import draw_kept


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    padding_mask: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """Scaled dot-product attention: softmax(q k^T / sqrt(D)) v.

    Args:
        query: (B, H, T, D)
        key, value: (B, H, S, D)
        padding_mask: (B, S) bool, True where a key is padding, not a whole row; None when nothing is padded
        causal: query t attends to the keys up to S - T + t, the last query to all. Padding must be on the right then,
            so that each query has a key
        dropout: probability of dropping an attention weight

    Returns:
        (B, H, T, D)
    """
    if dropout > 0.0 and query.device.type == "cpu":
        return attend_by_products(query, key, value, padding_mask=padding_mask, causal=causal, dropout=dropout)
    queries, keys = query.size(2), key.size(2)
    causal = causal and queries > 1
    if padding_mask is None and (not causal or queries == keys):
        return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=causal)
    hidden_keys = _hidden_keys(query, key, padding_mask, causal)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=~hidden_keys, dropout_p=dropout)


def attention_weights(query: Tensor, key: Tensor, padding_mask: Tensor | None) -> Tensor:
    """softmax(q k^T / sqrt(D)): query (B, H, T, D), key (B, H, S, D), padding mask (B, S) or None -> (B, H, T, S)"""
    scores = query @ key.transpose(2, 3) * query.size(3) ** -0.5
    if padding_mask is not None:
        scores = scores.masked_fill(padding_mask[:, None, None, :], float("-inf"))
    return scores.float().softmax(dim=3)


def attend_by_products(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    padding_mask: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """`attend` as two products around a softmax, one sentence at a time.

    On CPU with dropout, torch's scaled_dot_product_attention takes twice the time and three times the memory.
    """
    hidden_keys = _hidden_keys(query, key, padding_mask, causal and query.size(2) > 1)
    return _Products.apply(query, key, value, hidden_keys, dropout)


class _Products(torch.autograd.Function):
    """Attention of one sentence at a time, so that its scores (H, T, S) stay in the processor's cache.

    For the backward pass it stores the weights before dropout, and one byte per weight: whether it was kept.
    """

    @staticmethod
    def forward(ctx, query, key, value, hidden_keys, dropout):
        """Returns attention with dropout, (B, H, T, D), of query (B, H, T, D) to key and value (B, H, S, D)."""
        sentences, heads, queries, channels = query.shape
        kept, ctx.factor = draw_kept((sentences, heads, queries, key.size(2)), dropout)
        weights = query.new_empty(kept.shape)
        scores = torch.empty_like(weights[0])
        attended = query.new_empty(sentences, queries, heads, channels).transpose(1, 2)  # joining heads copies nothing
        scale = channels**-0.5
        for b in range(sentences):
            torch.baddbmm(scores, query[b], key[b].transpose(1, 2), beta=0, alpha=scale, out=scores)
            if hidden_keys is not None:
                scores.masked_fill_(hidden_keys[b % len(hidden_keys)], float("-inf"))
            torch.softmax(scores, dim=-1, out=weights[b])
            attended[b] = torch.mul(weights[b], kept[b], out=scores) @ value[b]
        ctx.save_for_backward(query, key, value, weights, kept)
        return attended.mul_(ctx.factor)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        """Returns the gradients of query, key and value, in their shapes, given that of the output, (B, H, T, D)."""
        query, key, value, weights, kept = ctx.saved_tensors
        by_query, by_key, by_value = torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)
        dropped, by_score = torch.empty_like(weights[0]), torch.empty_like(weights[0])
        gradient = gradient * ctx.factor
        for b in range(len(query)):
            torch.mul(weights[b], kept[b], out=dropped)
            by_value[b] = dropped.transpose(1, 2) @ gradient[b]
            # the gradient of a softmax is w (g - sum of w g); g here is 0 where the weight was dropped
            torch.bmm(gradient[b], value[b].transpose(1, 2), out=by_score).mul_(dropped)
            by_score.addcmul_(weights[b], by_score.sum(dim=-1, keepdim=True), value=-1)
            by_query[b] = by_score @ key[b]
            by_key[b] = by_score.transpose(1, 2) @ query[b]
        scale = query.size(-1) ** -0.5
        return by_query.mul_(scale), by_key.mul_(scale), by_value, None, None


def _hidden_keys(query: Tensor, key: Tensor, padding_mask: Tensor | None, causal: bool) -> Tensor | None:
    """Mask of the keys that a query must not attend to: bool, broadcasts to (B, H, T, S); None without any."""
    hidden = None if padding_mask is None else padding_mask[:, None, None, :]
    if causal:
        queries, keys = query.size(2), key.size(2)
        later = torch.ones(queries, keys, dtype=torch.bool, device=query.device).triu(keys - queries + 1)
        hidden = later[None, None] if hidden is None else hidden | later
    return hidden


def split_heads(projected: Tensor, heads: int) -> Tensor:
    """(B, T, C) -> (B, H, T, D)"""
    return projected.unflatten(-1, (heads, -1)).transpose(1, 2)


def join_heads(attended: Tensor) -> Tensor:
    """(B, H, T, D) -> (B, T, C)"""
    return attended.transpose(1, 2).flatten(2)


class Cache:
    """The keys and values (B, H, S, D) of an attention in incremental decoding; None before the first step."""

    def __init__(self, key: Tensor | None = None, value: Tensor | None = None):
        self.key, self.value = key, value

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Adds keys and values of T positions, (B, H, T, D); returns all, (B, H, S + T, D)."""
        if self.key is not None and self.value is not None:
            key, value = torch.cat([self.key, key], dim=2), torch.cat([self.value, value], dim=2)
        self.key, self.value = key, value
        return key, value

    def reorder(self, new_order: Tensor) -> None:
        """Keeps the rows `new_order` (B',)."""
        if self.key is not None and self.value is not None:
            self.key, self.value = self.key.index_select(0, new_order), self.value.index_select(0, new_order)


class LayerCache(NamedTuple):
    """The caches of a layer with cross-attention."""

    self_attention: Cache
    cross_attention: Cache


class _Attention(nn.Module):
    """Base of both attentions: heads and dropout."""

    def __init__(self, embed_dim: int, heads: int, dropout: float):
        super().__init__()
        if embed_dim % heads:
            raise UserError(f"--embed-dim {embed_dim} is not a multiple of --heads {heads}")
        self.heads = heads
        self.dropout = dropout


class SelfAttention(_Attention):
    """Multi-head self-attention with one fused projection."""

    def __init__(self, embed_dim: int, heads: int, dropout: float):
        super().__init__(embed_dim, heads, dropout)
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.out = nn.Linear(embed_dim, embed_dim)

    def forward(
        self,
        hidden: Tensor,
        *,
        padding_mask: Tensor | None = None,
        causal: bool = False,
        cache: Cache | None = None,
        attend: Callable[..., Tensor] = attend,
    ) -> Tensor:
        """(B, T, C) -> (B, T, C)

        With a cache, which has the keys and values of earlier positions, `hidden` has the new positions only, and
        `padding_mask` all positions so far. `attend` is the attention function.
        """
        query, key, value = (split_heads(part, self.heads) for part in self.qkv(hidden).chunk(3, dim=-1))
        if cache is not None:
            key, value = cache.append(key, value)
        dropout = self.dropout if self.training else 0.0
        return self.out(
            join_heads(attend(query, key, value, padding_mask=padding_mask, causal=causal, dropout=dropout))
        )


class CrossAttention(_Attention):
    """Multi-head attention to a memory, the encoder's output, whose keys and values are cached once.

    With `keeps_weights` the latest attention weights (B, T, S), means over the heads, are in `weights`.
    """

    def __init__(self, embed_dim: int, heads: int, dropout: float):
        super().__init__(embed_dim, heads, dropout)
        self.keeps_weights, self.weights = False, None
        self.query = nn.Linear(embed_dim, embed_dim)
        self.key_value = nn.Linear(embed_dim, 2 * embed_dim)
        self.out = nn.Linear(embed_dim, embed_dim)

    def forward(
        self,
        hidden: Tensor,
        memory: Tensor,
        *,
        memory_padding_mask: Tensor | None = None,
        cache: Cache | None = None,
        attend: Callable[..., Tensor] = attend,
    ) -> Tensor:
        """(B, T, C), memory (B, S, C), its padding mask (B, S) -> (B, T, C)

        Keys and values of the memory are computed once for a cache; later calls do not read the memory.
        """
        if cache is None:
            key, value = self.keys_and_values(memory)
        elif cache.key is None:
            key, value = cache.append(*self.keys_and_values(memory))
        else:
            key, value = cache.key, cache.value
        query = split_heads(self.query(hidden), self.heads)
        if self.keeps_weights:
            self.weights = attention_weights(query, key, memory_padding_mask).mean(dim=1)
        dropout = self.dropout if self.training else 0.0
        return self.out(join_heads(attend(query, key, value, padding_mask=memory_padding_mask, dropout=dropout)))

    def keys_and_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of a memory: (B, S, C) -> (B, H, S, D) each."""
        key, value = (split_heads(part, self.heads) for part in self.key_value(memory).chunk(2, dim=-1))
        return key, value
