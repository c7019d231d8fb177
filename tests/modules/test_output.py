"""The output layer and its loss against torch's own cross-entropy."""

import math

import pytest
import torch
from torch.nn import functional as F

from fairseq_xl.models.config import BackboneConfig
from fairseq_xl.modules import output as output_module
from fairseq_xl.modules.embeddings import TokenEmbeddings
from fairseq_xl.modules.output import OutputLayer


def layer(form, vocab_size=10):
    torch.manual_seed(0)
    token_embeddings = TokenEmbeddings(vocab_size, 4, 1, output_bias=True)
    torch.nn.init.normal_(token_embeddings.output_bias)
    return token_embeddings, OutputLayer(BackboneConfig(embed_dim=4, heads=2, output_form=form), token_embeddings)


def test_plain_form_is_the_tied_product_and_bias():
    token_embeddings, layer_ = layer("plain")
    hidden = torch.randn(2, 3, 4)
    torch.testing.assert_close(layer_(hidden), hidden @ token_embeddings.table.weight.T + token_embeddings.output_bias)
    assert not list(layer_.parameters())


def test_dense_form_transforms_first():
    token_embeddings, layer_ = layer("dense")
    hidden = torch.randn(3, 4)
    transformed = F.layer_norm(F.gelu(hidden @ layer_.dense.weight.T + layer_.dense.bias), (4,), eps=1e-12)
    torch.testing.assert_close(
        layer_(hidden), transformed @ token_embeddings.table.weight.T + token_embeddings.output_bias
    )


def test_loss_by_hand():
    token_embeddings, layer_ = layer("plain", vocab_size=3)
    torch.nn.init.zeros_(token_embeddings.table.weight)
    token_embeddings.output_bias.data = torch.tensor([0.0, math.log(2), math.log(5)])
    # probabilities 1/8, 2/8, 5/8 whatever the hidden state
    found = layer_.cross_entropy(torch.randn(2, 4), torch.tensor([1, 2]))
    torch.testing.assert_close(found, torch.tensor(math.log(4) + math.log(8 / 5)))


@pytest.mark.parametrize("form", ["plain", "dense"])
@pytest.mark.parametrize("chunked", [False, True])
def test_loss_and_gradients_are_torchs(form, chunked, monkeypatch):
    if chunked:
        if not hasattr(F, "linear_cross_entropy"):
            pytest.skip("this torch has no chunked loss")
        monkeypatch.setattr(output_module, "_LARGE_LOGITS", 0)
        monkeypatch.setattr(output_module, "_CHUNK_LOGITS", 0)
        monkeypatch.setattr(output_module, "_SMALLEST_CHUNK", 3)  # 8 predictions: the last chunk is a smaller one
        used = []
        original = F.linear_cross_entropy
        monkeypatch.setattr(F, "linear_cross_entropy", lambda *a, **k: used.append(True) or original(*a, **k))
    token_embeddings, layer_ = layer(form)
    hidden = torch.randn(8, 4, requires_grad=True)
    target = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6])
    parameters = [hidden, *token_embeddings.parameters(), *layer_.parameters()]
    # a factor, as loss scaling and term weights apply one before the backward pass
    found = layer_.cross_entropy(hidden, target) * 3
    gradients = torch.autograd.grad(found, parameters)
    expected = F.cross_entropy(layer_(hidden), target, reduction="sum") * 3
    torch.testing.assert_close(found, expected)
    for one, other in zip(gradients, torch.autograd.grad(expected, parameters)):
        torch.testing.assert_close(one, other)
    if chunked:
        assert used


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_slices_of_the_vocabulary_change_nothing(dtype, monkeypatch):
    token_embeddings, layer_ = layer("plain")
    token_embeddings.to(dtype)
    if dtype == torch.float32:
        token_embeddings.output_bias.data[:3] += 100  # e^100 is no float
    hidden = torch.randn(8, 4, dtype=dtype, requires_grad=True)
    target = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6])
    expected = F.cross_entropy(layer_(hidden).float(), target, reduction="sum") * 3
    expected = [expected, *torch.autograd.grad(expected, [hidden, *token_embeddings.parameters()])]
    monkeypatch.setattr(output_module, "_SLICE_LOGITS", 8 * 3)  # of 3, 3, 3 and 1 tokens
    found = layer_.cross_entropy(hidden, target) * 3
    found = [found, *torch.autograd.grad(found, [hidden, *token_embeddings.parameters()])]
    tolerance = 1e-4 if dtype == torch.float32 else 2e-2  # the logits' own precision
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype, tolerance", [(torch.bfloat16, 0.03), (torch.float16, 0.003)])
def test_a_confident_prediction_in_16_bits(dtype, tolerance, monkeypatch):
    """Each loss is about 0.01 nats; a logit of 16 is a multiple of 0.125 in bfloat16."""
    monkeypatch.setattr(output_module, "_SLICE_LOGITS", 300)
    torch.manual_seed(0)
    token_embeddings, layer_ = (
        TokenEmbeddings(1000, 64, 1, output_bias=True),
        OutputLayer(BackboneConfig(embed_dim=64, heads=2), None),
    )
    layer_._token_embeddings[0] = token_embeddings
    torch.nn.init.normal_(token_embeddings.table.weight)
    token_embeddings.to(dtype)
    target = torch.randint(1000, (200,))
    hidden = token_embeddings.table.weight[target].detach() / 4
    each = torch.stack([layer_.cross_entropy(hidden[[row]], target[[row]]) for row in range(200)])
    exact = F.linear(hidden.double(), token_embeddings.table.weight.double(), token_embeddings.output_bias.double())
    expected = F.cross_entropy(exact, target, reduction="sum")
    assert 1 < expected < 3
    assert each.min() >= 0
    assert abs(each.sum() / expected - 1) < tolerance


def test_a_gradient_that_was_freed_is_refused():
    _, layer_ = layer("plain")
    loss = layer_.cross_entropy(torch.randn(2, 4), torch.tensor([1, 2]))
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="can be computed once"):
        loss.backward()


def test_loss_of_a_batch_is_the_sum_of_its_predictions():
    _, layer_ = layer("dense")
    hidden, target = torch.randn(5, 4), torch.tensor([3, 1, 4, 1, 5])
    each = sum(layer_.cross_entropy(hidden[i : i + 1], target[i : i + 1]) for i in range(5))
    torch.testing.assert_close(layer_.cross_entropy(hidden, target), each)


def test_no_predictions_give_a_loss_of_zero_with_gradients():
    token_embeddings, layer_ = layer("plain")
    loss = layer_.cross_entropy(torch.zeros(0, 4), torch.zeros(0, dtype=torch.long))
    loss.backward()
    assert loss.item() == 0.0 and not token_embeddings.table.weight.grad.any()


def test_half_precision_loss_is_float32():
    token_embeddings, layer_ = layer("plain")
    token_embeddings.bfloat16()
    hidden, target = torch.randn(5, 4).bfloat16(), torch.tensor([3, 1, 4, 1, 5])
    assert layer_(hidden).dtype == torch.bfloat16
    assert layer_.cross_entropy(hidden, target).dtype == torch.float32
