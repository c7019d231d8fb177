"""Initial values of parameters."""

import math

import pytest
import torch
from torch import nn

from fairseq_xl.models.config import EncoderConfig, EncoderDecoderConfig, NgramDecoderConfig
from fairseq_xl.models.encoder import XLEncoderModel
from fairseq_xl.models.encoder_decoder import XLEncoderDecoderModel
from fairseq_xl.models.monotrans import MonoTransConfig, XLMonoTransModel
from fairseq_xl.models.ngram_decoder import XLNgramDecoderModel
from fairseq_xl.modules.embeddings import sinusoids


@pytest.mark.parametrize("given, std", [({}, 0.02), ({"init_std": 0.06}, 0.06)])
def test_weights_are_normal_biases_zero_padding_zero(given, std):
    torch.manual_seed(0)
    config = EncoderConfig(embed_dim=64, ffn_dim=128, heads=4, layers=2, **given)
    model = XLEncoderModel(config, 500, pad=1, num_languages=20)
    for name, module in model.named_modules():
        if isinstance(module, nn.LayerNorm):
            assert (module.weight == 1).all() and not module.bias.any(), name
        elif isinstance(module, (nn.Linear, nn.Embedding)):
            weight = module.weight[2:] if "token_embeddings" in name else module.weight
            # 20 x 64 values at the least: the sample's standard deviation is within 10 % of the true one
            assert abs(weight.std() / std - 1) < 0.1 and abs(weight.mean() / std) < 0.15, name
            if isinstance(module, nn.Linear):
                assert not module.bias.any(), name
    assert not model.encoder.token_embeddings.table.weight[1].any()
    assert not model.encoder.token_embeddings.output_bias.any()


def test_sinusoids():
    """Four channels: sin(p), sin(2πp/100), cos(p), cos(2πp/100); the last one has come around after 100 positions."""
    table = sinusoids(101, 4, max_wavelength=100)
    assert table.shape == (101, 4)
    expected = [
        [math.sin(p), math.sin(2 * math.pi * p / 100), math.cos(p), math.cos(2 * math.pi * p / 100)] for p in range(101)
    ]
    torch.testing.assert_close(table, torch.tensor(expected), atol=1e-5, rtol=0)
    assert table[100, 3] == pytest.approx(1, abs=1e-5) and table[50, 3] == pytest.approx(-1, abs=1e-5)
    assert sinusoids(3, 5, max_wavelength=10).shape == (3, 5)


def test_sinusoidal_positions_have_the_size_of_random_ones_and_leave_other_weights_alone():
    def initialized(position_init):
        torch.manual_seed(0)
        config = EncoderConfig(
            embed_dim=64,
            ffn_dim=128,
            heads=4,
            layers=1,
            position_offset=2,
            max_positions=100,
            position_init=position_init,
        )
        return XLEncoderModel(config, 50, pad=1, num_languages=2).state_dict()

    normal, sinusoidal = initialized("normal"), initialized("sinusoidal")
    name = "encoder.embeddings.positions.weight"
    assert [key for key in normal if not torch.equal(normal[key], sinusoidal[key])] == [name]
    positions = sinusoidal[name]
    torch.testing.assert_close(positions[:2], normal[name][:2], rtol=0, atol=0)  # XLM-R's unused rows
    assert positions[2:].square().mean().sqrt() == pytest.approx(0.02, rel=0.05)
    torch.testing.assert_close(positions[2:], sinusoids(100, 64, 100) * 0.02 * 2**0.5)


@pytest.mark.parametrize(
    "config, model, tables",
    [
        (EncoderDecoderConfig, XLEncoderDecoderModel, 2),
        (NgramDecoderConfig, XLNgramDecoderModel, 2),
        (MonoTransConfig, XLMonoTransModel, 1),
    ],
)
def test_all_models_take_sinusoidal_positions(dictionary, config, model, tables):
    layers = {"layers": 1} if tables == 1 else {"encoder_layers": 1, "decoder_layers": 1}
    cfg = config(embed_dim=16, ffn_dim=16, heads=2, max_positions=9, position_init="sinusoidal", **layers)
    size, special = len(dictionary), [0, 1, 2, 3, dictionary.mask_index]
    built = model(cfg, size, 1, 1, special) if tables == 1 else model(cfg, dictionary)
    found = [table.data for name, table in built.named_parameters() if name.endswith("positions.weight")]
    assert len(found) == tables
    for table in found:  # the n-gram decoder has two further positions
        torch.testing.assert_close(table, sinusoids(len(table), 16, 9) * 0.02 * 2**0.5)
