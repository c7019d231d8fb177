"""Attention against numbers worked out by hand and against itself along its two paths."""

import math

import numpy as np
import pytest
import torch

from fairseq_xl.errors import UserError
from fairseq_xl.modules import attention, features
from fairseq_xl.modules.attention import (
    Cache,
    CrossAttention,
    SelfAttention,
    attend,
    attend_by_products,
    attend_packed,
)
from fairseq_xl.modules.packing import Packing, find_packing
from tests.devices import DEVICES, moved, relative_error

PADDING = torch.tensor([[False, False, False, False, False], [False, False, False, True, True]])


def projections(queries, keys, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, 3, queries, 4), (2, 3, keys, 4), (2, 3, keys, 4))
    return [torch.randn(shape, generator=generator, dtype=dtype, requires_grad=True) for shape in shapes]


def test_two_tokens_by_hand():
    query = torch.tensor([[[[2.0], [0.0]]]])
    key = torch.tensor([[[[math.log(3) / 2], [0.0]]]])
    value = torch.tensor([[[[4.0], [8.0]]]])
    # the first query weighs the keys 3 : 1, the second 1 : 1
    expected = torch.tensor([[[[(3 * 4 + 8) / 4], [6.0]]]])
    torch.testing.assert_close(attend(query, key, value), expected)
    # causal: the first query sees the first key only
    expected = torch.tensor([[[[4.0], [6.0]]]])
    torch.testing.assert_close(attend(query, key, value, causal=True), expected)


def test_scores_are_divided_by_the_root_of_the_channels():
    query = torch.full((1, 1, 1, 4), 1.0)
    key = torch.stack([torch.full((4,), math.log(3) / 2), torch.zeros(4)])[None, None]
    value = torch.tensor([[4.0], [8.0]]).expand(2, 4)[None, None]
    # q k = 2 log 3, divided by sqrt(4) is log 3: weights 3 : 1
    torch.testing.assert_close(attend(query, key, value), torch.full((1, 1, 1, 4), 5.0))


@pytest.mark.parametrize("path", [attend, attend_by_products])
def test_causal_is_aligned_to_the_end(path):
    query, key, value = projections(2, 5)
    found = path(query, key, value, causal=True)
    last_but_one = path(query[:, :, :1], key[:, :, :4], value[:, :, :4])
    last = path(query[:, :, 1:], key, value)
    torch.testing.assert_close(found, torch.cat([last_but_one, last], dim=2))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padding", [None, PADDING])
@pytest.mark.parametrize("queries", [1, 2, 5])
def test_both_paths_agree_in_value_and_gradient(queries, padding, causal):
    results = []
    for path in (attend, attend_by_products):
        inputs = projections(queries, 5)
        found = path(*inputs, padding_mask=padding, causal=causal)
        results.append([found, *torch.autograd.grad(found.square().sum(), inputs)])
    for one, other in zip(*results):
        torch.testing.assert_close(one, other)


def test_padding_equals_cutting_it_off():
    query, key, value = projections(5, 5)
    found = attend(query, key, value, padding_mask=PADDING)
    torch.testing.assert_close(found[1], attend(query[1:], key[1:, :, :3], value[1:, :, :3])[0])


def test_no_mask_is_built_when_nothing_is_padded(monkeypatch):
    given = {}

    def sdpa(query, key, value, **options):
        given.update(options)
        return query

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", sdpa)
    attend(*projections(5, 5), causal=True)
    assert given.get("attn_mask") is None and given["is_causal"]
    attend(*projections(1, 5), causal=True)
    assert given.get("attn_mask") is None and not given["is_causal"]


@pytest.mark.parametrize("path", [attend, attend_by_products])
def test_gradients_are_those_of_finite_differences(path):
    inputs = projections(2, 5, torch.float64)
    assert torch.autograd.gradcheck(lambda q, k, v: path(q, k, v, padding_mask=PADDING), inputs, atol=1e-6, rtol=1e-6)


def test_gradients_with_dropout_are_those_of_finite_differences():
    def attended(query, key, value):
        torch.manual_seed(3)  # the same weights are dropped every time
        return attend_by_products(query, key, value, padding_mask=PADDING, causal=True, dropout=0.4)

    assert torch.autograd.gradcheck(attended, projections(5, 5, torch.float64), atol=1e-6, rtol=1e-6)


def test_dropout_drops_weights_and_keeps_their_expectation():
    torch.manual_seed(1)
    query = torch.zeros(1, 1, 400, 1)
    key, value = torch.zeros(1, 1, 100, 1), torch.ones(1, 1, 100, 1)
    found = attend(query, key, value, dropout=0.5).squeeze()
    # each output is (2 / 100) x Binomial(100, 0.5): mean 1, standard deviation 0.1
    assert abs(found.mean() - 1.0) < 0.02
    assert abs(found.std() - 0.1) < 0.02


def test_dropout_is_off_outside_training():
    attention = SelfAttention(8, 2, dropout=0.5)
    hidden = torch.randn(2, 5, 8)
    assert not torch.equal(attention(hidden), attention(hidden))
    attention.eval()
    assert torch.equal(attention(hidden), attention(hidden))


def test_attention_function_is_an_argument():
    attention = SelfAttention(8, 2, dropout=0.0)
    hidden = torch.randn(2, 5, 8)

    def own_value_only(query, key, value, **options):
        return value

    expected = attention.out(attention.qkv(hidden)[..., 16:])
    torch.testing.assert_close(attention(hidden, attend=own_value_only), expected)


def test_self_attention_cache_grows_and_is_reordered():
    attention = SelfAttention(8, 2, dropout=0.0).eval()
    hidden = torch.randn(3, 4, 8)
    order = torch.tensor([2, 0, 0])
    cache = Cache()
    for step in range(3):
        attention(hidden[:, step : step + 1], causal=True, cache=cache)
    cache.reorder(order)
    found = attention(hidden[order, 3:], causal=True, cache=cache)
    torch.testing.assert_close(found, attention(hidden[order], causal=True)[:, 3:])


def test_cross_attention_projects_the_memory_once_and_reorders_it():
    attention = CrossAttention(8, 2, dropout=0.0).eval()
    hidden, memory = torch.randn(2, 1, 8), torch.randn(2, 5, 8)
    cache = Cache()
    expected = attention(hidden, memory, memory_padding_mask=PADDING, cache=cache)
    wrong = torch.full_like(memory, float("nan"))
    torch.testing.assert_close(attention(hidden, wrong, memory_padding_mask=PADDING, cache=cache), expected)
    cache.reorder(torch.tensor([1]))
    found = attention(hidden[1:], wrong[1:], memory_padding_mask=PADDING[1:], cache=cache)
    torch.testing.assert_close(found, expected[1:])


def test_heads_that_do_not_divide_the_channels_are_refused():
    with pytest.raises(UserError, match="--embed-dim 8 is not a multiple of --heads 3"):
        SelfAttention(8, 3, dropout=0.0)


def packing_of(lengths, device):
    tokens = np.arange(max(lengths)) < np.array(lengths)[:, None]
    return Packing.from_tensors(moved(find_packing(tokens, False), device))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "causal, lengths, key_lengths",
    [(False, [9, 3, 70], [9, 3, 70]), (True, [9, 3, 70], [9, 3, 70]), (False, [9, 3, 70], [50, 8, 2])],
    ids=["full", "causal", "other keys"],
)
def test_packed_attention_in_16_bits_is_that_of_padded_sequences(
    causal, lengths, key_lengths, dtype, device, monkeypatch
):
    """In float64, gradients too. On a GPU from Ampere on by FlashAttention, else with padding."""
    calls, draw = [], torch.Generator().manual_seed(0)

    def recorded(*arguments):
        calls.append(arguments)
        return features.attend_varlen(*arguments)

    monkeypatch.setattr(attention, "attend_varlen", recorded)
    own, of_keys = packing_of(lengths, device), packing_of(key_lengths, device)
    sizes = [(sum(each), 2, 64) for each in (lengths, key_lengths, key_lengths)]
    inputs = [torch.randn(size, generator=draw).to(device, dtype).requires_grad_() for size in sizes]
    attended = attend_packed(*inputs, own, of_keys, causal=causal)
    weights = torch.randn(attended.shape, generator=draw).to(device)
    found = [attended, *torch.autograd.grad((attended.float() * weights).sum(), inputs)]
    exact = [each.detach().double().requires_grad_() for each in inputs]
    padded = [each.unpack(tensor).transpose(1, 2) for each, tensor in zip((own, of_keys, of_keys), exact)]
    mask = None if causal else of_keys.padding_mask
    attended = own.pack(attend(*padded, padding_mask=mask, causal=causal).transpose(1, 2))
    expected = [attended, *torch.autograd.grad((attended * weights).sum(), exact)]
    assert all(relative_error(*pair) < 1e-2 for pair in zip(found, expected))
    assert len(calls) == (device == "cuda" and torch.cuda.get_device_capability() >= (8, 0))
