"""n-stream self-attention (ProphetNet, Yan et al. 2020, section 3).

Stream 0, the main stream, processes the known tokens. Predicting stream i, from 1 to n, attends to it and predicts, at
each position, the i-th token after it. Streams are concatenated in time, the main stream first.

Shapes: B batch, S streams, T queries of a stream, K known positions (keys of the main stream), C channels, H heads,
D = C / H channels per head.
"""

import math

import torch
from torch import Tensor, nn

from fairseq_xl.modules.attention import Cache, SelfAttention, join_heads, split_heads, split_qkv
from fairseq_xl.modules.dropout import drop_values


def relative_buckets(distances: Tensor, buckets: int, max_distance: int) -> Tensor:
    """Distances to earlier positions, 0 or more -> their buckets: any shape -> the same shape.

    Each bucket of the first half is one distance; those of the second half are spaced logarithmically up to
    `max_distance`, from which on all distances share the last one (as T5's, in one direction).
    """
    exact = buckets // 2
    ratio = (distances.clamp(min=exact).float() / exact).log() / math.log(max_distance / exact)
    return torch.where(distances < exact, distances, (exact + ratio * (buckets - exact)).long().clamp(max=buckets - 1))


class Streams:
    """Attention function of all streams in one forward pass, the same for all layers.

    A query attends to the keys of the main stream up to its own position. A query of a predicting stream also attends
    to its own key, and to no other of a predicting stream. Scores are q k / sqrt(D) plus the query's bias for the
    bucket of the distance from the predicted position: t + i - k to position k for stream i at t, and 0 to itself.

    S is `count`; the T queries are the last of the K known positions. See `relative_buckets` for the other arguments.
    """

    def __init__(
        self, count: int, queries: int, keys: int, buckets: int, max_distance: int, device: torch.device | None
    ):
        positions = torch.arange(keys, device=device)
        distances = positions[keys - queries :, None] - positions  # (T, K)
        self._set(count, distances, distances < 0, buckets, max_distance)

    @classmethod
    def for_hypotheses(cls, count: int, mask: Tensor, buckets: int, max_distance: int) -> "Streams":
        """The attention function of one step of beam search, with one query for each of T hypotheses.

        The keys are those of all hypotheses at position 0, then at position 1, and so on. The mask, (B, 1, T, K) or (T,
        K) bool, is True where a key belongs to another hypothesis.
        """
        hypotheses, keys = mask.shape[-2:]
        positions = torch.arange(keys // hypotheses, device=mask.device)
        distances = (len(positions) - 1 - positions).repeat_interleave(hypotheses).expand(hypotheses, -1)
        streams = cls.__new__(cls)
        streams._set(count, distances, mask.unsqueeze(-3), buckets, max_distance)
        return streams

    def _set(self, count: int, distances: Tensor, hidden: Tensor, buckets: int, max_distance: int) -> None:
        """Distances (T, K) from a query to each key; hidden keys, bool that broadcasts to (B, H, S, T, K)."""
        device = distances.device
        ahead = torch.arange(count, device=device)[:, None, None]
        self.hidden = hidden
        self.main = (torch.arange(count * self.queries, device=device) < self.queries)[:, None]  # (S*T, 1)
        self.buckets = relative_buckets((distances + ahead).clamp(min=0), buckets, max_distance).flatten(0, 1)

    @property
    def queries(self) -> int:
        """T, the size of a tensor: compiled layers take an attribute that is a number for a constant."""
        return self.hidden.size(-2)

    def __call__(
        self, query: Tensor, own_key: Tensor, own_value: Tensor, key: Tensor, value: Tensor, bias: Tensor, rate: float
    ) -> Tensor:
        """(B, H, S*T, D)

        Args:
            query, own_key, own_value: (B, H, S*T, D) of all streams
            key, value: (B, H, K, D) of the main stream
            bias: (B, H, S*T, buckets), added to the scores of a query's keys in each bucket
            rate: probability of dropping an attention weight
        """
        query = query * query.size(-1) ** -0.5
        scores = query @ key.transpose(2, 3) + bias.gather(-1, self.buckets.expand(*bias.shape[:2], -1, -1))
        own_scores = (query * own_key).sum(dim=-1, keepdim=True) + bias[..., :1]  # (B, H, S*T, 1)
        hidden = float("-inf")
        scores = scores.unflatten(2, (-1, self.queries)).masked_fill(self.hidden, hidden).flatten(2, 3)
        scores = torch.cat([scores, own_scores.masked_fill(self.main, hidden)], dim=-1)
        weights = drop_values(scores.softmax(dim=-1), rate)
        return weights[..., :-1] @ value + weights[..., -1:] * own_value


class NgramAttention(SelfAttention):
    """Self-attention of streams; `relative` is the linear map from a query's hidden state to its biases."""

    def __init__(self, embed_dim: int, heads: int, dropout: float, buckets: int):
        super().__init__(embed_dim, heads, dropout)
        self.relative = nn.Linear(embed_dim, buckets * heads)

    def forward(  # type: ignore[override]  # attention to streams has no default
        self,
        hidden: Tensor,
        *,
        attend: Streams,
        cache: Cache | None = None,
        padding_mask: Tensor | None = None,
        causal: bool = True,
    ) -> Tensor:
        """(B, S*T, C) -> (B, S*T, C)

        With a cache, which has the main stream's keys and values of earlier positions, T is the number of new ones. It
        is always causal; padding must be on the right, where only padding attends to it.
        """
        if padding_mask is not None or not causal:
            raise ValueError("streams are causal and have no padding mask")
        projected, queries = self.qkv(hidden), attend.queries
        if cache is None:
            query, own_key, own_value = (split_heads(part, self.heads) for part in projected.chunk(3, dim=-1))
            key, value = own_key[:, :, :queries], own_value[:, :, :queries]
        else:
            heads = split_qkv(projected, self.heads)
            query, own_key, own_value = heads.unbind()
            key, value = cache.append(heads[1:, :, :, :queries])
        bias = self.relative(hidden).unflatten(-1, (-1, self.heads)).permute(0, 3, 1, 2)  # (B, H, S*T, buckets)
        rate = self.dropout if self.training else 0.0
        return self.out(join_heads(attend(query, own_key, own_value, key, value, bias, rate)))
