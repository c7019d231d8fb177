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

#: without a kernel for packed sequences, a batch is packed if at least 1 / LEAST_PADDING of its tokens are padding:
#: packing and unpacking take time too
LEAST_PADDING = 16


class Packing(NamedTuple):
    """Indices and lengths of the tokens of a padded batch that are packed."""

    indices: Tensor  # (N,) of the tokens that are not padding in the flattened batch (B*T), ascending
    offsets: Tensor  # (B+1,) int32, the first token of each sequence among the N; at the end N
    padding_mask: Tensor  # (B, T) bool, True at padding
    varlen: bool  # whether the device has a variable-length attention kernel

    @classmethod
    def of(cls, found: Mapping[str, Tensor]) -> "Packing":
        """Makes a packing from the result of `find_packing`."""
        indices = found["indices"]
        return cls(indices, found["offsets"], found["padding_mask"], has_varlen_attention(indices.device))

    @property
    def longest(self) -> int:
        """T"""
        return self.padding_mask.size(1)

    @property
    def has_much_padding(self) -> bool:
        """Whether at least one token in `LEAST_PADDING` is padding."""
        tokens = self.padding_mask.numel()
        return (tokens - self.indices.numel()) * LEAST_PADDING >= tokens

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
        """Numbers of tokens of the B sequences; waits for the GPU if they are on one."""
        return torch.diff(self.offsets).tolist()


def find_packing(tokens: np.ndarray, pad: int) -> PackingTensors | None:
    """The tokens of an array (B, T) that are not padding, so that a model can leave out the others.

    Returns: ``indices`` (N,) of these tokens in the flattened array, ascending; ``offsets`` (B+1,) int32, the number of
    them before each row, and at the end N; ``padding_mask`` (B, T) bool, True at padding. None without padding.
    """
    kept = tokens != pad
    return None if kept.all() else _packing(kept)


def _packing(kept: np.ndarray) -> PackingTensors:
    """`find_packing` for a mask (B, T), False at padding."""
    offsets = np.concatenate(([0], np.cumsum(kept.sum(axis=1))))
    return {
        "indices": torch.from_numpy(np.flatnonzero(kept)),
        "offsets": torch.from_numpy(offsets.astype(np.int32)),
        "padding_mask": torch.from_numpy(~kept),
    }


def find_packings(pad: int, **arrays: np.ndarray) -> dict[str, PackingTensors | None]:
    """`find_packing` of several arrays (B, T_i) by name; of all of them if one has padding."""
    kept = {name: tokens != pad for name, tokens in arrays.items()}
    if all(each.all() for each in kept.values()):
        return dict.fromkeys(arrays)
    return {name: _packing(each) for name, each in kept.items()}
