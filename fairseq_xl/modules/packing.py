"""Packed sequences: the tokens of all sequences of a batch, one after the other, without their padding.

Shapes: B sequences, T tokens of the longest one, N tokens that are not padding.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairseq_xl.modules.features import fits_varlen_attention, has_varlen_attention

#: what `find_packing` returns
PackingTensors = dict[str, Tensor]

#: without a kernel for packed sequences, a batch is packed if at least one token in `_PADDING_DIVISOR` is padding:
#: packing and unpacking take time too
_PADDING_DIVISOR = 16


class Packing(NamedTuple):
    """Indices and lengths of the tokens of a padded batch that are packed."""

    indices: Tensor  # (N,) of the tokens that are not padding in the flattened batch (B*T), ascending
    offsets: Tensor  # (B+1,) int32, the first token of each sequence among the N; at the end N
    padding_mask: Tensor  # (B, T) bool, True at padding
    varlen: bool  # whether the device has a variable-length attention kernel

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "Packing":
        """The packing of a batch by the result of `find_packing`."""
        indices = tensors["indices"]
        return cls(indices, tensors["offsets"], tensors["padding_mask"], has_varlen_attention(indices.device))

    @property
    def longest(self) -> int:
        """T"""
        return self.padding_mask.size(1)

    @property
    def has_much_padding(self) -> bool:
        """Whether at least one token in `_PADDING_DIVISOR` is padding."""
        tokens = self.padding_mask.numel()
        return (tokens - self.indices.numel()) * _PADDING_DIVISOR >= tokens

    def fits_varlen(self, dtype: torch.dtype, channels: int) -> bool:
        """Whether a variable-length kernel attends to queries of this type with D channels per head."""
        return self.varlen and fits_varlen_attention(dtype, channels)

    def pack(self, padded: Tensor) -> Tensor:
        """(B, T, …) -> (N, …)"""
        return padded.flatten(0, 1).index_select(0, self.indices)

    def unpack(self, packed: Tensor) -> Tensor:
        """(N, …) -> (B, T, …), 0 at padding"""
        flat = packed.new_zeros(self.padding_mask.numel(), *packed.shape[1:]).index_copy(0, self.indices, packed)
        return flat.unflatten(0, self.padding_mask.shape)

    def lengths(self) -> list[int]:
        """Lengths of the B sequences, in tokens; waits for the GPU if they are on one."""
        return torch.diff(self.offsets).tolist()


def find_packing(tokens: np.ndarray, pad: int) -> PackingTensors | None:
    """The packing of an array (B, T), as in `Packing`, by which a model leaves out padding; None without padding."""
    return find_packings(pad, tokens=tokens)["tokens"]


def find_packings(pad: int, **arrays: np.ndarray) -> dict[str, PackingTensors | None]:
    """`find_packing` of several arrays (B, T_i) by name; if one has padding, all are packed."""
    masks = {name: tokens != pad for name, tokens in arrays.items()}  # True at tokens
    if all(mask.all() for mask in masks.values()):
        return dict.fromkeys(arrays)
    offsets = {name: np.concatenate(([0], np.cumsum(mask.sum(axis=1)))) for name, mask in masks.items()}
    return {
        name: {
            "indices": torch.from_numpy(np.flatnonzero(mask)),
            "offsets": torch.from_numpy(offsets[name].astype(np.int32)),
            "padding_mask": torch.from_numpy(~mask),
        }
        for name, mask in masks.items()
    }
