"""Initial values of parameters."""

import pytest
import torch
from torch import nn

from fairseq_xl.models.config import EncoderConfig
from fairseq_xl.models.encoder import XLEncoderModel


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
