"""The layer against fairseq's encoder and decoder layers with the same weights."""

import pytest
import torch
from fairseq.models.transformer import TransformerConfig
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase, TransformerEncoderLayerBase

from fairseq_xl.models.model_options import BackboneConfig
from fairseq_xl.modules.layer import Layer

PADDING = torch.tensor([[False] * 5, [False, False, False, True, True]])
MEMORY_PADDING = torch.tensor([[False] * 3, [False, False, True]])


def config(activation):
    return BackboneConfig(embed_dim=8, ffn_dim=16, heads=2, activation=activation, layer_norm_eps=1e-5)


def fairseq_config(activation):
    cfg = TransformerConfig()
    cfg.activation_fn = activation
    cfg.dropout = 0.0
    for side in (cfg.encoder, cfg.decoder):
        side.embed_dim, side.ffn_embed_dim, side.attention_heads, side.normalize_before = 8, 16, 2, False
    return cfg


def copy(theirs, ours):
    """Fairseq's parameters, made random so that none is neutral, into our layer."""
    generator = torch.Generator().manual_seed(0)
    for parameter in theirs.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) * 0.3
    given = theirs.state_dict()

    def joined(kind, attention, parts):
        return torch.cat([given[f"{attention}.{part}_proj.{kind}"] for part in parts])

    state = {}
    for kind in ("weight", "bias"):
        state[f"self_attention.qkv.{kind}"] = joined(kind, "self_attn", "qkv")
        if ours.cross_attention is not None:
            state[f"cross_attention.query.{kind}"] = joined(kind, "encoder_attn", "q")
            state[f"cross_attention.key_value.{kind}"] = joined(kind, "encoder_attn", "kv")
            state[f"cross_attention.out.{kind}"] = given[f"encoder_attn.out_proj.{kind}"]
            state[f"cross_attention_norm.{kind}"] = given[f"encoder_attn_layer_norm.{kind}"]
        for name, source in (
            ("self_attention.out", "self_attn.out_proj"),
            ("self_attention_norm", "self_attn_layer_norm"),
            ("ffn.up", "fc1"),
            ("ffn.down", "fc2"),
            ("ffn_norm", "final_layer_norm"),
        ):
            state[f"{name}.{kind}"] = given[f"{source}.{kind}"]
    ours.load_state_dict(state)
    return theirs.eval(), ours.eval()


@pytest.mark.parametrize("activation", ["gelu", "relu"])
@pytest.mark.parametrize("padding", [None, PADDING])
def test_encoder_layer_is_fairseqs(activation, padding):
    theirs, ours = copy(
        TransformerEncoderLayerBase(fairseq_config(activation)), Layer(config(activation), cross_attention=False)
    )
    hidden = torch.randn(2, 5, 8)
    expected = theirs(hidden.transpose(0, 1), padding).transpose(0, 1)
    found = ours(hidden, padding_mask=padding)
    real = ~PADDING if padding is not None else torch.ones(2, 5, dtype=torch.bool)
    torch.testing.assert_close(found[real], expected[real], atol=1e-5, rtol=0)


@pytest.mark.parametrize("memory_padding", [None, MEMORY_PADDING])
def test_decoder_layer_is_fairseqs(memory_padding):
    theirs, ours = copy(
        TransformerDecoderLayerBase(fairseq_config("gelu")), Layer(config("gelu"), cross_attention=True)
    )
    hidden, memory = torch.randn(2, 5, 8), torch.randn(2, 3, 8)
    future = torch.full((5, 5), float("-inf")).triu(1)
    expected, _, _ = theirs(
        hidden.transpose(0, 1),
        memory.transpose(0, 1),
        encoder_padding_mask=memory_padding,
        self_attn_mask=future,
    )
    found = ours(hidden, causal=True, memory=memory, memory_padding_mask=memory_padding)
    torch.testing.assert_close(found, expected.transpose(0, 1), atol=1e-5, rtol=0)


def test_without_memory_a_decoder_layer_is_an_encoder_layer():
    both = Layer(config("gelu"), cross_attention=True).eval()
    alone = Layer(config("gelu"), cross_attention=False).eval()
    alone.load_state_dict({name: value for name, value in both.state_dict().items() if "cross" not in name})
    hidden = torch.randn(2, 5, 8)
    torch.testing.assert_close(both(hidden, padding_mask=PADDING), alone(hidden, padding_mask=PADDING))


def test_memory_without_cross_attention_is_an_error():
    layer = Layer(config("gelu"), cross_attention=False)
    with pytest.raises(ValueError, match="without cross-attention"):
        layer(torch.randn(1, 2, 8), memory=torch.randn(1, 2, 8))


@pytest.mark.parametrize("option", ["dropout", "attention_dropout", "activation_dropout"])
def test_each_dropout_acts_in_training_only(option):
    rates = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0, option: 0.5}
    layer = Layer(BackboneConfig(embed_dim=8, ffn_dim=16, heads=2, **rates), cross_attention=False)
    hidden = torch.randn(2, 5, 8)
    assert not torch.equal(layer(hidden), layer(hidden))
    layer.eval()
    assert torch.equal(layer(hidden), layer(hidden))
