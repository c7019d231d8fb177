"""Packed sequences: the tokens of all sequences of a batch, one after the other, without their padding.

Shapes: B sequences, T tokens of the longest one, N tokens that are not padding, H heads, D channels per head.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from fairseq_xl.patches.features import has_varlen_attention


class Packing(NamedTuple):
    """Which tokens of a padded batch are packed."""

    places: Tensor  # (N,) positions in the flattened batch (B*T) of the tokens that are not padding, ascending
    offsets: Tensor  # (B+1,) int32, the first token of each sequence among the N; at the end N
    longest: int  # T
    padding_mask: Tensor | None  # (B, T) bool, True at padding; None where a causal mask hides it: on the right
    varlen: bool  # whether the device has a kernel for sequences of several lengths

    @classmethod
    def of(cls, batch: Mapping[str, Tensor], longest: int, padding_mask: Tensor | None) -> "Packing":
        """Makes it of the result of `fairseq_xl.data.framing.find_packing`."""
        places = batch["places"]
        return cls(places, batch["offsets"], longest, padding_mask, has_varlen_attention(places.device))

    def pack(self, padded: Tensor) -> Tensor:
        """(B, T, …) -> (N, …)"""
        return padded.flatten(0, 1).index_select(0, self.places)

    def unpack(self, packed: Tensor) -> Tensor:
        """(N, …) -> (B, T, …), 0 at padding"""
        sequences = self.offsets.size(0) - 1
        flat = packed.new_zeros(sequences * self.longest, *packed.shape[1:]).index_copy(0, self.places, packed)
        return flat.unflatten(0, (sequences, self.longest))

    def lengths(self) -> list[int]:
        """Numbers of tokens of the B sequences; on a GPU it waits for the device."""
        return torch.diff(self.offsets).tolist()
