"""Lengths of outputs, and keys and values of a decoder in a search, greedy or with beams.

Shapes: B sentences, K hypotheses of a sentence, N layers, H heads, D channels of a head, S source time, T positions so
far, L positions for which there is room.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fairseq_xl.modules.attention import Cache, LayerCache

#: `factor` and `extra` of `output_limits` in back-translation and --eval-bleu (about Lample & Conneau's)
BACK_TRANSLATION = 1.3, 4
_FIRST_ROOM = 32  # positions; the room doubles when it is full
_ALIGNED = 8  # torch's fused attention on CUDA copies a mask whose strides are no multiple of it


def output_limits(source_lengths: Iterable[int], factor: float, extra: float, longest: int) -> list[int]:
    """Maximum lengths of outputs without ``</s>``: factor * S + extra, at most `longest`, for sources of S tokens."""
    return [min(int(factor * length + extra), longest) for length in source_lengths]


class BeamCaches:
    """The caches of all layers in a search for B sentences with K hypotheses each.

    Keys and values of the memory exist once per sentence. Cached keys and values of earlier tokens never move: all
    hypotheses of a sentence attend to one row of T * K keys, and a mask hides the keys of other hypotheses. Choosing
    hypotheses therefore changes the mask only, and copies no keys and values.

    `encoder_out` is that of `SourceEncoder.forward`; the outputs have `languages` (B, 1) or None, and at most `longest`
    positions.
    """

    def __init__(self, layers: Iterable[Any], encoder_out: Any, languages: Tensor | None, beam: int, longest: int):
        memory, masks = encoder_out["encoder_out"][0], encoder_out["encoder_padding_mask"]
        pairs = [part for layer in layers for part in layer.cross_attention.keys_and_values(memory)]
        self.memory = torch.stack(pairs).unflatten(0, (-1, 2))  # (N, 2, B, H, S, D)
        self.memory_mask: Tensor | None = None  # (B, 1, 1, S and more for aligned strides): 0 or -inf at padding
        if masks:
            padded = F.pad(masks[0], (0, -masks[0].size(1) % _ALIGNED), value=True)[:, None, None]
            self.memory_mask = torch.zeros_like(padded, dtype=memory.dtype).masked_fill_(padded, float("-inf"))
        self.languages, self.beam, self.longest, self.length = languages, beam, longest, 0
        *sizes, _, channels = self.memory.shape
        self.past = memory.new_empty(*sizes, 0, channels)  # (N, 2, B, H, L * K, D)
        self.mask: Tensor | None = None  # (B * K, L * K): 0 or -inf, added to the scores; None for K = 1
        self._set_memory()

    def advance(self) -> None:
        """Adds the next position, whose keys and values are written by `layer_caches`."""
        if self.length * self.beam == self.past.size(4):
            self._make_room()
        self.length += 1

    def layer_caches(self) -> list[LayerCache]:
        """The caches of the layers; each appends the K keys and values of the current position."""
        end = self.length * self.beam
        previous = self.past[:, :, :, :, :end].flatten(0, 1).unbind()
        new = self.past[:, :, :, :, end - self.beam : end].unbind()
        pairs = zip(previous[::2], previous[1::2], new, self._memory_caches)
        return [LayerCache(_SharedSelfAttentionCache(key, value, row), memory) for key, value, row, memory in pairs]

    def history_mask(self) -> Tensor | None:
        """Mask that hides the keys of other hypotheses, (B, 1, K, T * K): 0 or -inf; None for K = 1."""
        if self.mask is None:
            return None
        return self.mask[:, : self.length * self.beam].unflatten(0, (-1, self.beam))[:, None]

    def select(self, hypotheses: Tensor, sentences: Tensor | None = None) -> None:
        """Continues with the rows `hypotheses` (B' * K,) of B * K, of the rows `sentences` (B',) of B; None: of all."""
        if self.mask is not None:
            filled = self.length * self.beam
            selected = self.mask[:, :filled].index_select(0, hypotheses)
            if sentences is not None:
                self.mask = self.mask[: len(selected)]
            self.mask[:, :filled] = selected
        if sentences is not None:
            self.past, self.memory = self.past.index_select(2, sentences), self.memory.index_select(2, sentences)
            if self.memory_mask is not None:
                self.memory_mask = self.memory_mask.index_select(0, sentences)
            if self.languages is not None:
                self.languages = self.languages.index_select(0, sentences)
            self._set_memory()

    def _make_room(self) -> None:
        """Doubles the number of positions, up to `longest`."""
        room = min(max(2 * self.length, _FIRST_ROOM), -(-self.longest // _ALIGNED) * _ALIGNED)
        filled, (*sizes, _, channels) = self.past, self.past.shape
        self.past = filled.new_empty(*sizes, room * self.beam, channels)
        self.past[..., : filled.size(4), :] = filled
        if self.beam > 1:
            masks, self.mask = self.mask, filled.new_full((sizes[2], self.beam, room, self.beam), float("-inf"))
            self.mask.diagonal(dim1=1, dim2=3).zero_()  # a hypothesis attends to what it has written itself
            self.mask = self.mask.flatten(2).flatten(0, 1)
            if masks is not None:
                self.mask[:, : masks.size(1)] = masks

    def _set_memory(self) -> None:
        """Sets the caches, the padding mask and the attention of the memory."""
        self._memory_caches = [Cache(key, value) for key, value in self.memory]
        mask = None if self.memory_mask is None else self.memory_mask[..., : self.memory.size(4)]
        self.padding_mask = None if mask is None else mask[:, 0, 0] < 0  # (B, S) bool
        self.attend_memory = masked_attention(mask)


class _SharedSelfAttentionCache(Cache):
    """Cache of a layer's self-attention: views of `BeamCaches.past`, with room for K new keys and values."""

    def __init__(self, key: Tensor, value: Tensor, new: Tensor):
        super().__init__(key, value)
        self.new = new

    def append(self, new: Tensor) -> tuple[Tensor, Tensor]:
        """Writes the keys and values of the new position, (2, B, H, K, D); returns all, (B, H, T * K, D) each."""
        self.new.copy_(new)
        return self.key, self.value  # type: ignore[return-value]


def masked_attention(mask: Tensor | None) -> Callable[..., Tensor]:
    """Attention function, without dropout, that adds `mask` to the scores and ignores its other masks."""

    def attend(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        padding_mask: Tensor | None = None,  # in `mask`
        causal: bool = False,  # no later keys exist
        dropout: float = 0.0,  # of training only
    ) -> Tensor:
        """Queries (B, H, T, D), keys and values (B, H, S, D) -> (B, H, T, D)"""
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)

    return attend
