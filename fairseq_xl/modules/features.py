"""Features of the installed torch."""

import functools

import torch

#: whether a product of matrices in 16 bits can have a result in float32, on CUDA only; new in torch 2.8
HAS_PRODUCTS_IN_FLOAT32 = hasattr(torch.ops.aten.mm, "dtype")


@functools.cache
def has_varlen_attention(device: torch.device) -> bool:
    """Whether `attend_varlen` runs on a device: a GPU of the generation of Ampere (2020) or later."""
    if device.type != "cuda" or not hasattr(torch.ops.aten, "_flash_attention_forward"):
        return False
    return torch.backends.cuda.is_flash_attention_available() and torch.cuda.get_device_capability(device) >= (8, 0)


def fits_varlen_attention(dtype: torch.dtype, channels: int) -> bool:
    """Whether `attend_varlen` takes queries (N, H, D) of this type and this number D of channels per head."""
    return dtype in (torch.float16, torch.bfloat16) and channels % 8 == 0 and channels <= 256


def attend_varlen(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    offsets: tuple[torch.Tensor, torch.Tensor],
    longest: tuple[int, int],
    causal: bool,
    dropout: float,
) -> torch.Tensor:
    """Attention of packed sequences by FlashAttention: queries (N, H, D), keys and values (M, H, D) -> (N, H, D).

    It calls the operator below torch.nn.attention.varlen.varlen_attn, which has no dropout.

    Args:
        offsets: of the queries and of the keys: int32 (B+1,), the first token of each sequence, at the end N or M
        longest: numbers of queries and of keys of the longest sequence
    """
    return torch.ops.aten._flash_attention_forward(query, key, value, *offsets, *longest, dropout, causal, False)[0]
