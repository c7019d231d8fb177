"""n-stream self-attention against a query-by-query computation, and its buckets against ProphetNet's."""

import pytest
import torch

from fairseq_xl.modules.attention import Cache
from fairseq_xl.modules.ngram_attention import NgramAttention, Streams, relative_buckets


def test_buckets_by_hand():
    """8 buckets up to 16: one each for 0 to 3, then borders at 4 2^(k/2)."""
    distances = torch.tensor([0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 15, 16, 1000])
    assert relative_buckets(distances, 8, 16).tolist() == [0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 7, 7, 7, 7]


def test_buckets_are_prophetnets():
    from transformers.models.prophetnet.modeling_prophetnet import compute_relative_buckets

    distances = torch.arange(600)
    assert torch.equal(relative_buckets(distances, 32, 128), compute_relative_buckets(32, 128, -distances).long())


def make(dropout=0.0):
    torch.manual_seed(0)
    attention = NgramAttention(8, 2, dropout, buckets=6)
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return attention.double()


def one_query(attention, states, stream, position):
    """What a query sees, literally: states (S, T, C) -> (C,)."""
    query_state = states[stream, position]
    query = attention.qkv(query_state)[:8]
    seen = [(states[0, known], position + stream - known) for known in range(position + 1)]
    if stream:
        seen.append((query_state, 0))
    heads = []
    for head in range(2):
        own = slice(4 * head, 4 * head + 4)
        biases = attention.relative(query_state).view(6, 2)[:, head]
        scores, values = [], []
        for state, distance in seen:
            key, value = attention.qkv(state)[8:].chunk(2)
            bucket = int(relative_buckets(torch.tensor(distance), 6, 5))
            scores.append(query[own] @ key[own] / 2 + biases[bucket])
            values.append(value[own])
        heads.append(torch.stack(scores).softmax(0) @ torch.stack(values))
    return attention.out(torch.cat(heads))


def test_each_query_sees_the_known_tokens_and_itself():
    attention, states = make(), torch.randn(3, 7, 8, dtype=torch.float64)
    found = attention(states.flatten(0, 1)[None], attend=Streams(3, 7, 7, 6, 5, None)).view(3, 7, 8)
    for stream in range(3):
        for position in range(7):
            torch.testing.assert_close(found[stream, position], one_query(attention, states, stream, position))


def test_newest_positions_with_a_cache():
    """Two steps at once, then one at a time; only keys of the main stream are cached."""
    attention, states, cache = make(), torch.randn(2, 3, 5, 8, dtype=torch.float64), Cache()
    expected = attention(states.flatten(1, 2), attend=Streams(3, 5, 5, 6, 5, None)).view(2, 3, 5, 8)
    for first, last in ((0, 2), (2, 3), (3, 4), (4, 5)):
        attend = Streams(3, last - first, last, 6, 5, None)
        found = attention(states[:, :, first:last].flatten(1, 2), attend=attend, cache=cache)
        torch.testing.assert_close(found.view(2, 3, -1, 8), expected[:, :, first:last])
        assert cache.key.shape == cache.value.shape == (2, 2, last, 4)


def test_fewer_streams_change_nothing_in_those_that_are_left():
    attention, states = make(), torch.randn(2, 4, 5, 8, dtype=torch.float64)
    every = attention(states.flatten(1, 2), attend=Streams(4, 5, 5, 6, 5, None)).view(2, 4, 5, 8)
    some = attention(states[:, :2].flatten(1, 2), attend=Streams(2, 5, 5, 6, 5, None)).view(2, 2, 5, 8)
    torch.testing.assert_close(every[:, :2], some)


def test_weights_are_dropped_in_training_only():
    attention, states = make(dropout=0.5), torch.randn(1, 6, 8, dtype=torch.float64)
    attend = Streams(2, 3, 3, 6, 5, None)
    assert not torch.equal(attention(states, attend=attend), attention(states, attend=attend))
    attention.eval()
    assert torch.equal(attention(states, attend=attend), attention(states, attend=attend))


def test_what_streams_cannot_be():
    for wrong in (dict(causal=False), dict(padding_mask=torch.zeros(1, 6, dtype=torch.bool))):
        with pytest.raises(ValueError, match="streams are causal"):
            make()(torch.zeros(1, 6, 8, dtype=torch.float64), attend=Streams(2, 3, 3, 6, 5, None), **wrong)
