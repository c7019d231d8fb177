"""Attention functions, and the self-attention and cross-attention of a layer with projections and caches.

Shapes: B batch, T queries, S keys, C channels, H heads, D = C / H channels per head; N queries and M keys of packed
sequences (`fairseq_xl.modules.packing`).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from fairseq_xl.errors import UserError
from fairseq_xl.modules.dropout import draw_keep_mask
from fairseq_xl.modules.features import attend_varlen
from fairseq_xl.modules.packing import Packing

Lengths = tuple[list[int], list[int]]  # of the queries and of the keys of packed sentences
Shape = tuple[int, ...]  # (H, T, S)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    padding_mask: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """Scaled dot-product attention: softmax(q k^T / sqrt(D)) v, (B, H, T, D).

    Args:
        query: (B, H, T, D)
        key, value: (B, H, S, D)
        padding_mask: (B, S) bool, True where a key is padding, not a whole row; None when nothing is padded
        causal: query t attends to the keys up to S - T + t, the last query to all. Padding must be on the right then,
            so that each query has a key
        dropout: probability of dropping an attention weight
    """
    if _uses_matmul_attention(query, dropout):
        return attend_by_products(query, key, value, padding_mask=padding_mask, causal=causal, dropout=dropout)
    queries, keys = query.size(2), key.size(2)
    if queries == 1:
        causal = False
    if padding_mask is None and (not causal or queries == keys):
        return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=causal)
    hidden_keys: Any = _hidden_keys(queries, keys, query.device, padding_mask, causal)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=~hidden_keys, dropout_p=dropout)


def attend_packed(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    packing: Packing,
    key_packing: Packing,
    *,
    causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """`attend` of packed sequences, the i-th queries to the i-th keys: (N, H, D) -> (N, H, D).

    A variable-length kernel, or the loop on CPU, computes nothing for padding; without either, sequences are padded.

    Args:
        query: (N, H, D)
        key, value: (M, H, D)
        packing, key_packing: packing of the queries and packing of the keys
        causal: query t attends to the keys up to t; both packings are the same then, and have no padding on the left
        dropout: probability of dropping an attention weight
    """
    if packing.fits_varlen(query.dtype, query.size(-1)):
        offsets, longest = (packing.offsets, key_packing.offsets), (packing.longest, key_packing.longest)
        return attend_varlen(query, key, value, offsets, longest, causal, dropout)
    if _uses_matmul_attention(query, dropout):
        later = _hidden_keys(packing.longest, key_packing.longest, query.device, None, causal)
        return _Products.apply(query, key, value, later, (packing.lengths(), key_packing.lengths()), dropout)
    unpacked = packing.unpack(query), key_packing.unpack(key), key_packing.unpack(value)
    padded = [tensor.transpose(1, 2) for tensor in unpacked]
    mask = None if causal else key_packing.padding_mask
    return packing.pack(attend(*padded, padding_mask=mask, causal=causal, dropout=dropout).transpose(1, 2))


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
    queries = query.size(2)
    hidden_keys = _hidden_keys(queries, key.size(2), query.device, padding_mask, causal and queries > 1)
    return _Products.apply(query, key, value, hidden_keys, None, dropout)


def _uses_matmul_attention(query: Tensor, dropout: float) -> bool:
    """Whether to compute attention with `_Products`; torch.compile cannot trace its loop."""
    return dropout > 0.0 and query.device.type == "cpu" and not torch.compiler.is_compiling()


class _Products(torch.autograd.Function):
    """Attention of one sentence at a time, so that its scores (H, T, S) stay in the CPU's cache.

    For the backward pass it stores the weights before dropout, and the dropout mask, one byte per weight.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        hidden_keys: Tensor | None,
        lengths: Lengths | None,
        dropout: float,
    ) -> Tensor:
        """Queries (B, H, T, D), keys and values (B, H, S, D) -> (B, H, T, D); packed (N, H, D), (M, H, D) -> (N, H, D).

        `hidden_keys` is bool, broadcasts to (B, H, T, S), and may be None. Packed sentences have `lengths`.
        """
        attended = torch.empty_like(query)
        if lengths is None:  # joining heads then copies nothing
            attended = query.new_empty(query.transpose(1, 2).shape).transpose(1, 2)
        queries, keys, values, outputs = _split_sentences(lengths, query, key, value, attended)
        shapes = [(*q.shape[:2], k.size(1)) for q, k in zip(queries, keys)]  # (H, T, S) of each sentence
        keep_mask, ctx.factor = draw_keep_mask((sum(map(math.prod, shapes)),), dropout)
        weights, scratch = query.new_empty(keep_mask.shape), _scratch(shapes, query)
        scale = query.size(-1) ** -0.5
        for b, (weight, keep) in enumerate(zip(_matrices(shapes, weights), _matrices(shapes, keep_mask))):
            scores = scratch[shapes[b]]
            torch.baddbmm(scores, queries[b], keys[b].transpose(1, 2), beta=0, alpha=scale, out=scores)
            if hidden_keys is not None:
                hidden = hidden_keys[b % len(hidden_keys)]
                if lengths is not None:
                    hidden = hidden[:, : shapes[b][1], : shapes[b][2]]
                scores.masked_fill_(hidden, float("-inf"))
            torch.softmax(scores, dim=-1, out=weight)
            outputs[b].copy_(torch.mul(weight, keep, out=scores) @ values[b])
        ctx.save_for_backward(query, key, value, weights, keep_mask)
        ctx.lengths, ctx.shapes = lengths, shapes
        return attended.mul_(ctx.factor)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Returns the gradients of query, key and value, in their shapes, given that of the output."""
        query, key, value, weights, keep_mask = ctx.saved_tensors
        results = [torch.empty_like(tensor) for tensor in (query, key, value)]
        tensors = (query, key, value, gradient * ctx.factor, *results)
        queries, keys, values, gradients, *grads = _split_sentences(ctx.lengths, *tensors)
        weight_buffers, score_buffers = _scratch(ctx.shapes, weights), _scratch(ctx.shapes, weights)
        for b, (weight, keep) in enumerate(zip(_matrices(ctx.shapes, weights), _matrices(ctx.shapes, keep_mask))):
            dropped, grad_scores = weight_buffers[ctx.shapes[b]], score_buffers[ctx.shapes[b]]
            torch.mul(weight, keep, out=dropped)
            grad_query, grad_key, grad_value = (tensor[b] for tensor in grads)
            grad_value.copy_(dropped.transpose(1, 2) @ gradients[b])
            # the gradient of a softmax is w (g - sum of w g); g here is 0 where the weight was dropped
            torch.bmm(gradients[b], values[b].transpose(1, 2), out=grad_scores).mul_(dropped)
            grad_scores.addcmul_(weight, grad_scores.sum(dim=-1, keepdim=True), value=-1)
            grad_query.copy_(grad_scores @ keys[b])
            grad_key.copy_(grad_scores.transpose(1, 2) @ queries[b])
        scale = query.size(-1) ** -0.5
        return results[0].mul_(scale), results[1].mul_(scale), results[2], None, None, None


def _split_sentences(lengths: Lengths | None, *tensors: Tensor) -> list[tuple[Tensor, ...]]:
    """Views (H, T, D) of each of the B sentences, for each tensor.

    Tensors are (B, H, T, D); or packed, (N, H, D) or (M, H, D), with the lengths of queries and of keys. Up to seven
    tensors have the lengths of the query, key, value, output, and the gradients of query, key and value.
    """
    if lengths is None:
        return [tensor.unbind(0) for tensor in tensors]
    query_lengths, key_lengths = lengths
    order = (query_lengths, key_lengths, key_lengths, query_lengths, query_lengths, key_lengths, key_lengths)
    return [tensor.transpose(0, 1).split(sizes, dim=1) for tensor, sizes in zip(tensors, order)]


def _matrices(shapes: list[Shape], flat: Tensor) -> Sequence[Tensor]:
    """The parts of a flat tensor, one for each sentence, as views (H, T, S)."""
    if len(set(shapes)) == 1:
        return flat.view(len(shapes), *shapes[0]).unbind(0)
    return [part.view(shape) for part, shape in zip(flat.split(list(map(math.prod, shapes))), shapes)]


def _scratch(shapes: list[Shape], like: Tensor) -> dict[Shape, Tensor]:
    """{shape (H, T, S): a tensor for intermediate results}, all in the same memory."""
    flat = like.new_empty(max(map(math.prod, shapes)))
    return {shape: flat[: math.prod(shape)].view(shape) for shape in set(shapes)}


def _hidden_keys(
    queries: int, keys: int, device: torch.device, padding_mask: Tensor | None, causal: bool
) -> Tensor | None:
    """Mask of the keys to which a query must not attend: bool, broadcasts to (B, H, T, S); None hides nothing."""
    hidden = None if padding_mask is None else padding_mask[:, None, None, :]
    if causal:
        later = torch.ones(queries, keys, dtype=torch.bool, device=device).triu(keys - queries + 1)
        hidden = later[None, None] if hidden is None else hidden | later
    return hidden


def split_heads(projected: Tensor, heads: int) -> Tensor:
    """(B, T, C) -> (B, H, T, D)"""
    return projected.unflatten(-1, (heads, -1)).transpose(1, 2)


def split_qkv(projected: Tensor, heads: int) -> Tensor:
    """Queries, keys and values: (B, T, 3 * C) -> (3, B, H, T, D); for decoding: its gradient would cost copies."""
    return projected.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)


def join_heads(attended: Tensor) -> Tensor:
    """(B, H, T, D) -> (B, T, C)"""
    return attended.transpose(1, 2).flatten(2)


class Cache:
    """The keys and values (B, H, S, D) of an attention in incremental decoding; None before the first step."""

    def __init__(self, key: Tensor | None = None, value: Tensor | None = None):
        self.key, self.value = key, value

    def append(self, new: Tensor) -> tuple[Tensor, Tensor]:
        """Adds the keys and values of T positions, (2, B, H, T, D); returns all, (B, H, S + T, D) each."""
        key, value = new.unbind()
        if self.key is not None and self.value is not None:
            key, value = torch.cat([self.key, key], dim=2), torch.cat([self.value, value], dim=2)
        self.key, self.value = key, value
        return key, value

    def reorder(self, new_order: Tensor) -> None:
        """Selects the rows `new_order` (B',)."""
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


def _joined(embed_dim: int, matrices: int) -> nn.Linear:
    """A projection by several square matrices at once, whose number the weight has as `matrices`, for LAMB."""
    projection = nn.Linear(embed_dim, matrices * embed_dim)
    projection.weight.matrices = matrices  # type: ignore[attr-defined]  # LAMB reads it
    return projection


class SelfAttention(_Attention):
    """Multi-head self-attention with one fused projection."""

    def __init__(self, embed_dim: int, heads: int, dropout: float):
        super().__init__(embed_dim, heads, dropout)
        self.qkv = _joined(embed_dim, 3)
        self.out = nn.Linear(embed_dim, embed_dim)

    def forward(
        self,
        hidden: Tensor,
        *,
        padding_mask: Tensor | None = None,
        causal: bool = False,
        cache: Cache | None = None,
        attend: Callable[..., Tensor] = attend,
        packing: Packing | None = None,
    ) -> Tensor:
        """(B, T, C) -> (B, T, C); with a packing (N, C) -> (N, C)

        With a cache, which has the keys and values of earlier positions, `hidden` has the new positions only, and
        `padding_mask` all positions so far. `attend` is the attention function of padded sequences.
        """
        dropout = self.dropout if self.training else 0.0
        projected = self.qkv(hidden)
        if packing is not None:
            query, key, value = projected.unflatten(-1, (3, self.heads, -1)).unbind(1)
            attended = attend_packed(query, key, value, packing, packing, causal=causal, dropout=dropout)
            return self.out(attended.flatten(1))
        if cache is None:
            query, key, value = (split_heads(part, self.heads) for part in projected.chunk(3, dim=-1))
        else:
            heads = split_qkv(projected, self.heads)
            query, (key, value) = heads[0], cache.append(heads[1:])
        return self.out(
            join_heads(attend(query, key, value, padding_mask=padding_mask, causal=causal, dropout=dropout))
        )


class CrossAttention(_Attention):
    """Multi-head attention to a memory, the encoder's output, whose keys and values are cached once.

    With `keeps_weights` the latest attention weights (B, T, S), means over the heads, are in `weights`.
    """

    def __init__(self, embed_dim: int, heads: int, dropout: float):
        super().__init__(embed_dim, heads, dropout)
        self.keeps_weights = False
        self.weights: Tensor | None = None
        self.query = nn.Linear(embed_dim, embed_dim)
        self.key_value = _joined(embed_dim, 2)
        self.out = nn.Linear(embed_dim, embed_dim)

    def forward(
        self,
        hidden: Tensor,
        memory: Tensor,
        *,
        memory_padding_mask: Tensor | None = None,
        cache: Cache | None = None,
        attend: Callable[..., Tensor] = attend,
        packings: tuple[Packing, Packing] | None = None,
    ) -> Tensor:
        """(B, T, C), memory (B, S, C), its padding mask (B, S) -> (B, T, C)

        With packings of `hidden` and of the memory: (N, C), memory (M, C) -> (N, C). Keys and values of the
        memory are computed once for a cache; later calls do not read the memory.
        """
        dropout = self.dropout if self.training else 0.0
        if packings is not None:
            query = self.query(hidden).unflatten(-1, (self.heads, -1))
            key, value = self.key_value(memory).unflatten(-1, (2, self.heads, -1)).unbind(1)
            return self.out(attend_packed(query, key, value, *packings, dropout=dropout).flatten(1))
        if cache is None:
            key, value = self.keys_and_values(memory)
        else:
            if cache.key is None:
                cache.key, cache.value = self.keys_and_values(memory)
            key, value = cache.key, cache.value
        query = split_heads(self.query(hidden), self.heads)
        if self.keeps_weights:
            scores = query @ key.transpose(2, 3) * query.size(3) ** -0.5  # (B, H, T, S)
            if memory_padding_mask is not None:
                scores = scores.masked_fill(memory_padding_mask[:, None, None, :], float("-inf"))
            self.weights = scores.float().softmax(dim=3).mean(dim=1)
        return self.out(join_heads(attend(query, key, value, padding_mask=memory_padding_mask, dropout=dropout)))

    def keys_and_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of a memory: (B, S, C) -> (B, H, S, D) each."""
        key, value = (split_heads(part, self.heads) for part in self.key_value(memory).chunk(2, dim=-1))
        return key, value
