"""Pooling: one vector from the hidden states of a text."""

from torch import Tensor

POOLINGS = ("first", "mean", "max")


def pool(hidden: Tensor, padding: Tensor | None, pooling: str) -> Tensor:
    """Hidden states (B, T, C), padding (B, T) bool or None -> (B, C): of the first token, or over all but padding."""
    if pooling == "first":
        return hidden[:, 0]
    if padding is None:
        return hidden.mean(1) if pooling == "mean" else hidden.amax(1)
    if pooling == "max":
        return hidden.masked_fill(padding[..., None], float("-inf")).amax(1)
    return hidden.masked_fill(padding[..., None], 0).sum(1) / (~padding).sum(1, keepdim=True)
