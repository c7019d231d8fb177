"""The sum of embeddings before the first layer, and initial values of parameters."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fairseq_xl.errors import UserError
from fairseq_xl.models.encoder import XLEncoderModel
from fairseq_xl.models.encoder_decoder import XLEncoderDecoderModel
from fairseq_xl.models.model_options import BackboneConfig, EncoderConfig, EncoderDecoderConfig, NgramDecoderConfig
from fairseq_xl.models.monotrans import MonoTransConfig, XLMonoTransModel
from fairseq_xl.models.ngram_decoder import XLNgramDecoderModel
from fairseq_xl.modules import output
from fairseq_xl.modules.embeddings import Embeddings, TokenEmbeddings, sinusoids
from tests.devices import DEVICES, no_sync
from tests.waits import Waits

PAD = 1


def embeddings(**options):
    cfg = BackboneConfig(embed_dim=8, heads=2, max_positions=6, dropout=0.0, **options)
    token_embeddings = TokenEmbeddings(10, 8, PAD, output_bias=False)
    return token_embeddings, Embeddings(cfg, token_embeddings, num_languages=3)


def test_tokens_positions_and_languages_are_added_and_normalized():
    token_embeddings, module = embeddings()
    found = module(torch.tensor([[4, 5]]), languages=torch.tensor([[2]]))
    rows = [
        token_embeddings.table.weight[4 + t] + module.positions.weight[t] + module.languages.weight[2] for t in range(2)
    ]
    torch.testing.assert_close(found[0], F.layer_norm(torch.stack(rows), (8,), eps=1e-12))


def test_positions_and_languages_can_be_given_per_token():
    token_embeddings, module = embeddings()
    positions, languages = torch.tensor([[0, 1, 0]]), torch.tensor([[0, 0, 1]])
    found = module(torch.tensor([[4, 5, 6]]), positions, languages)
    row = token_embeddings.table.weight[6] + module.positions.weight[0] + module.languages.weight[1]
    torch.testing.assert_close(found[0, 2], F.layer_norm(row, (8,), eps=1e-12))


def test_first_position_and_offset_shift_the_rows():
    token_embeddings, module = embeddings(language_embeddings="none", position_offset=2)
    assert module.positions.weight.shape == (8, 8)
    found = module(torch.tensor([[4]]), first_position=3)
    row = token_embeddings.table.weight[4] + module.positions.weight[2 + 3]
    torch.testing.assert_close(found[0, 0], F.layer_norm(row, (8,), eps=1e-12))


def test_padding_on_either_side_shifts_no_position():
    _, module = embeddings(language_embeddings="none")
    tokens = torch.tensor([[PAD, PAD, 4, 5], [4, 5, PAD, PAD]])
    found = module(tokens, padding_mask=tokens.eq(PAD))
    expected = module(torch.tensor([[4, 5]]))[0]
    torch.testing.assert_close(found[0, 2:], expected)
    torch.testing.assert_close(found[1, :2], expected)


def test_token_embeddings_is_not_owned_and_is_followed_by_a_copy():
    token_embeddings, module = embeddings()
    assert not [name for name, _ in module.named_parameters() if "tokens" in name]
    both = copy.deepcopy(torch.nn.ModuleList([token_embeddings, module]))
    assert both[1].token_embeddings is both[0] and both[0] is not token_embeddings


def test_model_without_languages_does_not_read_them():
    _, module = embeddings(language_embeddings="none")
    tokens = torch.tensor([[4, 5]])
    assert torch.equal(module(tokens), module(tokens, languages=torch.tensor([[2]])))


def test_too_long_input_is_named():
    _, module = embeddings(language_embeddings="none")
    with pytest.raises(UserError, match="7 tokens is longer than --max-positions 6"):
        module(torch.full((1, 7), 4))
    with pytest.raises(UserError, match="7 tokens is longer than --max-positions 6"):
        module(torch.full((1, 1), 4), first_position=6)


def test_missing_languages_are_named():
    _, module = embeddings()
    with pytest.raises(UserError, match="doesn't say its languages"):
        module(torch.tensor([[4, 5]]))
    with pytest.raises(UserError, match="--language-embeddings none"):
        Embeddings(
            BackboneConfig(embed_dim=8, heads=2), TokenEmbeddings(10, 8, PAD, output_bias=False), num_languages=0
        )


@pytest.mark.parametrize("uses", ["rows table", "rows", "table", "rows table rows table"])
def test_one_gradient_is_that_of_all_uses(uses):
    token_embeddings, _ = embeddings()
    tokens = torch.tensor([[4, 5, 4], [PAD, 6, 4]])
    weights = torch.randn(2, 3, 8)

    def loss(number, use):
        return (number + 1) * (
            (token_embeddings(tokens) * weights).sum()
            if use == "rows"
            else token_embeddings.output_matrix.square().sum()
        )

    expected = torch.autograd.grad(sum(map(loss, *zip(*enumerate(uses.split())))), token_embeddings.table.weight)[0]
    with token_embeddings.one_gradient():
        total = sum(map(loss, *zip(*enumerate(uses.split()))))
    total.backward()
    torch.testing.assert_close(token_embeddings.table.weight.grad, expected)
    assert token_embeddings.output_matrix is token_embeddings.table.weight


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("losses", [1, 2])
def test_one_gradient_of_the_output_layers_losses(chunked, losses, monkeypatch):
    """Output losses keep a gradient of the table themselves: one or two in a forward pass, accumulated twice."""
    if chunked:
        monkeypatch.setattr(output, "_chunk_size", lambda hidden, weight: 3)
    torch.manual_seed(0)
    token_embeddings = TokenEmbeddings(10, 4, PAD, output_bias=True)
    layer = output.OutputLayer(BackboneConfig(embed_dim=4, heads=2), token_embeddings)
    tokens, target = torch.tensor([[4, 5, 4, 7, 6, 4, 9, 2]]), torch.tensor([3, 1, 4, 1, 5, 9, 2, 6])
    found, expected = [], []
    for _ in range(2):
        with token_embeddings.one_gradient():
            hidden = token_embeddings(tokens)[0]
            sum(layer.cross_entropy(hidden * number, target) for number in range(1, losses + 1)).backward()
        found.append(token_embeddings.table.weight.grad.clone())
    token_embeddings.zero_grad()
    for _ in range(2):
        logits = [
            F.linear(token_embeddings.table(tokens)[0] * number, token_embeddings.table.weight)
            for number in range(1, losses + 1)
        ]
        sum(F.cross_entropy(one, target, reduction="sum") for one in logits).backward()
        expected.append(token_embeddings.table.weight.grad.clone())
    torch.testing.assert_close(found, expected)


def test_one_gradient_is_one_tensor():
    token_embeddings, _ = embeddings()
    seen = []
    with token_embeddings.one_gradient():
        token_embeddings.output_matrix.register_hook(lambda gradient: seen.append(gradient.data_ptr()))
        (token_embeddings(torch.tensor([[4, 5]])).sum() + token_embeddings.output_matrix.square().sum()).backward()
    assert seen == [token_embeddings.table.weight.grad.data_ptr()]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_gradient_of_lookup_needs_no_sync(dtype, device):
    """torch's own sparse gradient counts what is not padding, at the end of the backward pass: the host would wait."""
    token_embeddings, _ = embeddings()
    token_embeddings.to(device, dtype)
    tokens = torch.tensor([[4, 5, 4], [PAD, 6, 4]]).to(device)
    with token_embeddings.one_gradient():
        loss = (token_embeddings(tokens) @ token_embeddings.output_matrix.t()).float().square().sum()
    with no_sync(device):
        loss.backward()
    weights = token_embeddings.table.weight.detach().cpu().requires_grad_()
    loss = F.embedding(tokens.cpu(), weights, PAD, sparse=True).float().square().sum()
    with Waits() as its:
        torch.autograd.grad(loss, weights)
    assert sum(its.found.values()) == 2
    assert token_embeddings.table.weight.grad.layout == torch.strided


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_gradient_of_a_frequent_token_in_16_bits_is_rounded_once(dtype, device):
    """Summed row by row in 16 bits, 6,000 rows of 1/64 would stop at 4 in bfloat16 and at 32 in float16."""
    embeddings = TokenEmbeddings(11, 4, pad=1, output_bias=False).to(device, dtype)
    tokens = torch.tensor([[7] * 6000 + [3, 1, 9, 3]]).to(device)
    with embeddings.one_gradient():
        found = embeddings(tokens)
    found.backward(torch.full_like(found, 1 / 64))
    expected = torch.zeros(11, 4)
    expected[7], expected[3], expected[9] = 93.75, 2 / 64, 1 / 64
    torch.testing.assert_close(embeddings.table.weight.grad.float().cpu(), expected, rtol=1e-2, atol=0)


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


@pytest.mark.parametrize("scale, factor", [("none", 1), ("sqrt", 8)])
def test_sinusoidal_positions_have_the_size_of_token_embeddings_and_leave_other_weights_alone(scale, factor):
    def initialized(position_init):
        torch.manual_seed(0)
        sizes = dict(embed_dim=64, ffn_dim=128, heads=4, layers=1, position_offset=2, max_positions=100)
        config = EncoderConfig(**sizes, position_init=position_init, embedding_scale=scale)
        return XLEncoderModel(config, 50, pad=1, num_languages=2).state_dict()

    normal, sinusoidal = initialized("normal"), initialized("sinusoidal")
    name = "encoder.embeddings.positions.weight"
    assert [key for key in normal if not torch.equal(normal[key], sinusoidal[key])] == [name]
    positions = sinusoidal[name]
    torch.testing.assert_close(positions[:2], normal[name][:2], rtol=0, atol=0)  # XLM-R's unused rows
    assert positions[2:].square().mean().sqrt() == pytest.approx(0.02 * factor, rel=0.05)
    torch.testing.assert_close(positions[2:], sinusoids(100, 64, 100) * 0.02 * 2**0.5 * factor)


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
