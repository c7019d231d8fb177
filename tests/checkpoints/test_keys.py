"""Names of parameters of earlier versions."""

import torch

from fairseq_xl.checkpoints.keys import upgrade_keys


def test_names_of_earlier_versions():
    old = {
        "encoder.bank.tokens.weight": "encoder.token_embeddings.table.weight",
        "decoder.bank.bias": "decoder.token_embeddings.output_bias",
        "encoder.bank.special.weight": "encoder.token_embeddings.special.weight",
        "decoder.futures.weight": "decoder.stream_embeddings.weight",
        "encoder.layers.0.ffn.up.bias": "encoder.layers.0.ffn.up.bias",
        "heads.bank.bias": "heads.bank.bias",
    }
    upgraded = upgrade_keys({name: torch.tensor(number) for number, name in enumerate(old)})
    assert list(upgraded) == list(old.values()) and list(upgraded.values()) == [0, 1, 2, 3, 4, 5]
    assert list(upgrade_keys(upgraded)) == list(upgraded)
