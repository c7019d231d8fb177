"""The encoder model. Equality with published encoders is in tests/checkpoints/layouts."""

import pytest
import torch
from torch import nn

from fairseq_xl.models.encoder import XLEncoderModel
from fairseq_xl.models.model_options import EncoderConfig

PAD = 1


@pytest.fixture
def model():
    torch.manual_seed(0)
    cfg = EncoderConfig(embed_dim=16, ffn_dim=32, heads=2, layers=2, max_positions=10)
    model = XLEncoderModel(cfg, vocab_size=23, pad=PAD, num_languages=2).eval()
    for name, parameter in model.named_parameters():  # nothing neutral, so that every path shows
        nn.init.normal_(parameter, mean=1.0 if name.endswith("norm.weight") else 0.0, std=0.4)
    return model


def test_padding_changes_nothing(model):
    short, languages = torch.tensor([[0, 5, 6, 2]]), torch.tensor([[1]])
    expected = model.encode(short, languages=languages)
    for padded in ([[0, 5, 6, 2, PAD, PAD]], [[PAD, PAD, 0, 5, 6, 2]]):
        tokens = torch.tensor(padded)
        found = model.encode(tokens, languages=languages, padding_mask=tokens.eq(PAD))
        torch.testing.assert_close(found[tokens.ne(PAD)], expected[0], atol=1e-5, rtol=0)


def test_batch_of_many_is_many_batches_of_one(model):
    tokens = torch.tensor([[0, 5, 6, 2], [0, 7, 2, PAD]])
    languages = torch.tensor([[1], [0]])
    found = model.encode(tokens, languages=languages, padding_mask=tokens.eq(PAD))
    torch.testing.assert_close(found[:1], model.encode(tokens[:1], languages=languages[:1]), atol=1e-5, rtol=0)
    alone = model.encode(tokens[1:, :3], languages=languages[1:])
    torch.testing.assert_close(found[1:, :3], alone, atol=1e-5, rtol=0)


def test_causal_position_does_not_react_to_later_ones(model):
    languages = torch.tensor([[0]])
    one, other = torch.tensor([[0, 5, 6, 7]]), torch.tensor([[0, 5, 8, 9]])
    causal = [model.encode(tokens, languages=languages, causal=True)[:, :2] for tokens in (one, other)]
    full = [model.encode(tokens, languages=languages)[:, :2] for tokens in (one, other)]
    torch.testing.assert_close(*causal, atol=1e-6, rtol=0)
    assert (full[0] - full[1]).abs().max() > 0.1


def test_language_of_each_token_and_position_reset_matter(model):
    tokens = torch.tensor([[0, 5, 2, 2, 6, 2]])
    plain = model.encode(tokens, languages=torch.tensor([[0]]))
    reset = model.encode(tokens, torch.tensor([[0, 1, 2, 0, 1, 2]]), languages=torch.tensor([[0]]))
    mixed = model.encode(tokens, languages=torch.tensor([[0, 0, 0, 1, 1, 1]]))
    assert (plain - reset).abs().max() > 0.1 and (plain - mixed).abs().max() > 0.1


def test_all_layers_ends_with_the_result(model):
    tokens, languages = torch.tensor([[0, 5, 2]]), torch.tensor([[0]])
    states = model.encoder(tokens, languages=languages, all_layers=True)
    assert len(states) == 3
    assert torch.equal(states[-1], model.encode(tokens, languages=languages))
    assert torch.equal(states[0], model.encoder.embeddings(tokens, languages=languages))


def test_forward_runs_any_callable_on_the_model(model):
    assert model(lambda given, batch: (given, batch), "batch") == (model, "batch")


def test_heads_are_part_of_the_model(model):
    model.add_heads({"pairs": nn.Linear(16, 2)})
    assert model.state_dict()["heads.pairs.weight"].shape == (2, 16)


def test_normalized_probabilities(model):
    logits = torch.randn(2, 3, 23).bfloat16()
    probabilities = model.get_normalized_probs((logits, None), log_probs=False)
    assert probabilities.dtype == torch.float32
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(2, 3))
    torch.testing.assert_close(model.get_normalized_probs((logits, None), log_probs=True).exp(), probabilities)


def test_state_dict_is_named_as_documented(model):
    layers = {
        f"encoder.layers.{n}.{module}.{kind}"
        for n in range(2)
        for module in (
            "self_attention.qkv",
            "self_attention.out",
            "self_attention_norm",
            "ffn.up",
            "ffn.down",
            "ffn_norm",
        )
        for kind in ("weight", "bias")
    }
    assert set(model.state_dict()) == layers | {
        "encoder.token_embeddings.table.weight",
        "encoder.token_embeddings.output_bias",
        "encoder.embeddings.positions.weight",
        "encoder.embeddings.languages.weight",
        "encoder.embeddings.norm.weight",
        "encoder.embeddings.norm.bias",
    }
