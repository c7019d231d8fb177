"""FlashAttention's operator for sequences of several lengths, on the meta device: shapes and types, no values."""

import pytest
import torch

from fairseq_xl.modules.attention import attend_packed
from fairseq_xl.modules.features import fits_varlen_attention, has_varlen_attention
from fairseq_xl.modules.packing import Packing


def packing(tokens, sequences, longest):
    return Packing(
        torch.zeros(tokens, dtype=torch.long, device="meta"),
        torch.zeros(sequences + 1, dtype=torch.int32, device="meta"),
        torch.zeros(sequences, longest, dtype=torch.bool, device="meta"),
        varlen=True,
    )


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_varlen_attention_takes_packed_sequences(dtype, compiled):
    """With dropout, a causal mask and a backward pass; torch.compile traces it in one graph."""
    qkv = torch.zeros(30, 3, 2, 64, dtype=dtype, device="meta", requires_grad=True)
    function = torch.compile(attend_packed, backend="aot_eager", fullgraph=True) if compiled else attend_packed
    own = packing(30, 4, 12)
    attended = function(*qkv.unbind(1), own, own, causal=True, dropout=0.1)
    assert attended.shape == (30, 2, 64) and attended.dtype == dtype
    attended.sum().backward()
    assert qkv.grad.shape == qkv.shape
    torch._dynamo.reset()


def test_varlen_attention_has_keys_of_other_lengths():
    query, key = (torch.zeros(tokens, 2, 64, dtype=torch.bfloat16, device="meta") for tokens in (30, 50))
    attended = attend_packed(query, key, key, packing(30, 4, 12), packing(50, 4, 20))
    assert attended.shape == (30, 2, 64)


def test_varlen_attention_is_for_gpus_in_16_bits():
    assert not has_varlen_attention(torch.device("cpu"))
    for dtype, channels, expected in (
        (torch.bfloat16, 64, True),
        (torch.float16, 256, True),
        (torch.float32, 64, False),
        (torch.bfloat16, 12, False),
        (torch.bfloat16, 264, False),
    ):
        assert fits_varlen_attention(dtype, channels) == expected
