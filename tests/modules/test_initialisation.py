"""Where parameters start."""

import torch
from torch import nn

from fairseq_xl.models.config import EncoderConfig
from fairseq_xl.models.encoder import XLEncoderModel


def test_weights_are_normal_biases_zero_padding_zero():
    torch.manual_seed(0)
    model = XLEncoderModel(EncoderConfig(embed_dim=64, ffn_dim=128, heads=4, layers=2), 500, pad=1, num_languages=20)
    for name, module in model.named_modules():
        if isinstance(module, nn.LayerNorm):
            assert (module.weight == 1).all() and not module.bias.any(), name
        elif isinstance(module, (nn.Linear, nn.Embedding)):
            weight = module.weight[2:] if "bank" in name else module.weight
            # 20 x 64 values at the least: the sample's standard deviation is within 10 % of the true one
            assert abs(weight.std() - 0.02) < 0.002 and abs(weight.mean()) < 0.003, name
            if isinstance(module, nn.Linear):
                assert not module.bias.any(), name
    assert not model.encoder.bank.tokens.weight[1].any()
    assert not model.encoder.bank.bias.any()
