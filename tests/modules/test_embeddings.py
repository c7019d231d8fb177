"""The sum of embeddings before the first layer."""

import copy

import pytest
import torch
from torch.nn import functional as F

from fairseq_xl.errors import UserError
from fairseq_xl.models.config import BackboneConfig
from fairseq_xl.modules import output
from fairseq_xl.modules.embeddings import Embeddings, TokenEmbeddings
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
