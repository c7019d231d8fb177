"""The output layer and its loss against torch's own cross-entropy."""

import math

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fairseq_xl.models.model_options import BackboneConfig
from fairseq_xl.modules import features, output as output_module
from fairseq_xl.modules.embeddings import TokenEmbeddings
from fairseq_xl.modules.output import OutputLayer
from tests.devices import DEVICES, relative_error


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


def in_small_chunks(monkeypatch, predictions=3, part=20):
    """Chunks of at most that many predictions, and softmax and 16-bit products of so many elements at a time."""
    monkeypatch.setattr(output_module, "_chunk_size", lambda hidden, weight: predictions)
    monkeypatch.setattr(output_module, "_CPU_PART", part)
    monkeypatch.setattr(output_module, "_PART", part)


@pytest.mark.parametrize("symbols, predictions, size", [(32_000, 307, 307), (32_000, 1100, 550), (250_000, 307, 103)])
def test_a_chunk_on_cpu_has_at_most_128_mebibytes(symbols, predictions, size):
    hidden, weight = torch.empty(predictions, 1), torch.empty(1, 1).expand(symbols, 1)
    assert output_module._chunk_size(hidden, weight) == size
    assert size * symbols * 4 <= 2**27


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("form", ["plain", "dense"])
@pytest.mark.parametrize("chunked", [False, True])
def test_loss_and_gradients_are_torchs(form, chunked, smoothing, monkeypatch):
    if chunked:
        in_small_chunks(monkeypatch)  # 8 predictions: the last chunk is a smaller one
    token_embeddings, layer_ = layer(form)
    hidden = torch.randn(8, 4, requires_grad=True)
    target = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6])
    parameters = [hidden, *token_embeddings.parameters(), *layer_.parameters()]
    # a factor, as loss scaling and term weights apply one before the backward pass
    found, nll = (loss * 3 for loss in layer_.losses(hidden, target, smoothing))
    gradients = torch.autograd.grad(found, parameters)
    wanted = torch.full((8, 10), smoothing / 9).scatter(1, target[:, None], 1 - smoothing)
    expected = F.cross_entropy(layer_(hidden), wanted, reduction="sum") * 3
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(nll, F.cross_entropy(layer_(hidden), target, reduction="sum") * 3)
    assert not nll.requires_grad
    for one, other in zip(gradients, torch.autograd.grad(expected, parameters)):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_sum_of_products_in_32_bits(dtype, device, monkeypatch):
    """left^T right of 16 bits, by parts of the vocabulary, against float64.

    torch from 2.8 on gives a product in 32 bits on a GPU; elsewhere each product is rounded to 16 bits.
    """
    monkeypatch.setattr(output_module, "_CPU_PART", 100)
    monkeypatch.setattr(output_module, "_PART", 100)
    draw, expected = torch.Generator().manual_seed(0), 0
    total = torch.full((300, 8), math.nan, device=device)
    for first in (True, False):
        left, right = (torch.randn(64, size, generator=draw).to(device, dtype) for size in (300, 8))
        output_module._add_product(total, left, right, replaces=first)
        expected = expected + left.double().t() @ right.double()
    is_wide = device == "cuda" and features.HAS_PRODUCTS_IN_FLOAT32
    assert relative_error(total, expected) < (1e-5 if is_wide else torch.finfo(dtype).eps)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_precision_of_gradients(dtype, chunked, device, monkeypatch):
    """Against 64 bits: a frequent symbol, whose sums are large, and symbols with probabilities of one in 250,000.

    float16 represents such a probability to 1.5 %, and no sum above 65504.
    """
    in_small_chunks(monkeypatch, *((60, 1000) if chunked else (10**6, 2**20)))
    torch.manual_seed(0)
    token_embeddings = TokenEmbeddings(300, 8, 1, output_bias=True)
    layer_ = OutputLayer(BackboneConfig(embed_dim=8, heads=2), token_embeddings)
    torch.nn.init.normal_(token_embeddings.table.weight, std=0.02)
    token_embeddings.output_bias.data[0] = math.log(250_000)
    hidden, target = 30 * torch.randn(2500, 8).abs(), torch.randint(0, 3, (2500,))
    results = []
    for precision in (dtype, torch.float64):
        token_embeddings.to(device, dtype).to(precision)  # the same numbers
        inputs = [hidden.to(device, dtype).to(precision).requires_grad_(), *token_embeddings.parameters()]
        loss = layer_.cross_entropy(inputs[0], target.to(device)) * (128 / 2500)  # a mean, times fairseq's loss scale
        results.append([loss, *(each.double() for each in torch.autograd.grad(loss, inputs))])
    (loss, *found), (exact, *expected) = results
    eps = {torch.float64: 1e-12, torch.float32: 1e-5}.get(dtype, 2 * torch.finfo(dtype).eps)
    assert loss.item() == pytest.approx(exact.item(), rel=eps)
    assert expected[1][5:].abs().max() < 0.05 < 80 < expected[1][0].abs().max()
    for one, other in zip(found, expected):
        assert one.isfinite().all()
        assert (one - other).norm() < eps * other.norm()
    rare, exactly = found[1][5:], expected[1][5:]
    assert (rare - exactly).norm() < 4 * eps * exactly.norm()


def test_a_confident_prediction_in_32_bits():
    """A loss of 6e-5 nats at a logit of 40, which is a multiple of 4e-6."""
    token_embeddings, layer_ = layer("plain")
    token_embeddings.output_bias.data[:] = 28
    token_embeddings.output_bias.data[3] = 40
    torch.nn.init.zeros_(token_embeddings.table.weight)
    found = layer_.cross_entropy(torch.randn(1, 4), torch.tensor([3]))
    found.backward()
    expected = math.log1p(9 * math.exp(-12))
    assert found.item() == pytest.approx(expected, rel=0.02)
    assert token_embeddings.output_bias.grad[3].item() == pytest.approx(-expected, rel=0.02)


def test_a_large_logit_is_no_overflow():
    token_embeddings, layer_ = layer("plain")
    token_embeddings.output_bias.data[:3] += 100  # e^100 is no float
    hidden, target = torch.randn(8, 4), torch.tensor([3, 1, 4, 1, 5, 9, 2, 6])
    expected = F.cross_entropy(layer_(hidden), target, reduction="sum")
    torch.testing.assert_close(layer_.cross_entropy(hidden, target), expected)


@pytest.mark.parametrize("dtype, tolerance", [(torch.bfloat16, 0.03), (torch.float16, 0.003)])
def test_a_confident_prediction_in_16_bits(dtype, tolerance, monkeypatch):
    """Each loss is about 0.01 nats; a logit of 16 is a multiple of 0.125 in bfloat16."""
    in_small_chunks(monkeypatch, 150, 5000)
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
    with pytest.raises(RuntimeError, match="no second backward pass"):
        loss.backward()


class Allocations(TorchDispatchMode):
    """Records the sizes of new tensors, in elements, and the most bytes that they took at the same time."""

    def __init__(self):
        super().__init__()
        self.elements, self.most_bytes, self.alive, self.known = [], 0, [], set()

    def ignore(self, *tensors):
        self.known |= {tensor.untyped_storage()._cdata for tensor in tensors}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.alive = [(storage, size) for storage, size in self.alive if not storage.expired()]
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                storage = StorageWeakRef(tensor.untyped_storage())
                if storage.cdata not in self.known | {other.cdata for other, _ in self.alive}:
                    self.elements.append(tensor.numel())
                    self.alive.append((storage, tensor.untyped_storage().nbytes()))
        self.most_bytes = max(self.most_bytes, sum(size for _, size in self.alive))
        return result


def loss_with_allocations(predictions, symbols, channels, dtype, device, smoothing=0.1, frozen=False, backward=True):
    token_embeddings = TokenEmbeddings(symbols, channels, 1, output_bias=True).to(device, dtype)
    token_embeddings.requires_grad_(not frozen)
    layer_ = OutputLayer(BackboneConfig(embed_dim=channels, heads=1), token_embeddings)
    hidden = torch.zeros(predictions, channels, dtype=dtype, device=device, requires_grad=True)
    target = torch.ones(predictions, dtype=torch.long, device=device)
    with Allocations() as allocations:
        allocations.ignore(hidden, target, *token_embeddings.parameters())
        loss = layer_.cross_entropy(hidden, target, smoothing)
        if backward:
            loss.backward()
    return allocations


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_all_tokens_of_a_large_batch_fit_into_2_gb(dtype):
    """16 × 512 predictions of 250,000 symbols with 1,024 channels, counted without data: all logits take 4 or 8 GB."""
    with torch.device("meta"):
        found = loss_with_allocations(16 * 512, 250_000, 1024, dtype, "meta")
    assert 250_000 * 1024 * dtype.itemsize < found.most_bytes <= 2 * 10**9


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_logits_are_held_by_chunks(dtype, monkeypatch):
    """3,000 predictions of 999 symbols: no tensor of even a tenth of their logits, in the forward and backward pass."""
    monkeypatch.setattr(output_module, "_CPU_CHUNK_BYTES", 256 * 999 * dtype.itemsize)
    found = loss_with_allocations(3000, 999, 16, dtype, "cpu")
    assert max(found.elements) == 250 * 999  # 12 chunks


def test_only_needed_gradients_take_memory():
    sizes = dict(predictions=30, symbols=999, channels=100, dtype=torch.float32, device="cpu", smoothing=0.0)
    table = 999 * 100
    assert table in loss_with_allocations(**sizes).elements
    assert table not in loss_with_allocations(**sizes, frozen=True).elements
    with torch.no_grad():
        assert {table, 30 * 100}.isdisjoint(loss_with_allocations(**sizes, backward=False).elements)


def test_autocast_applies_to_the_whole_loss():
    token_embeddings, layer_ = layer("plain")
    hidden, target = torch.randn(8, 4), torch.tensor([3, 1, 4, 1, 5, 9, 2, 6])
    with torch.autocast("cpu", torch.bfloat16):
        found = layer_.cross_entropy(hidden, target)
        found.backward()
    gradient = token_embeddings.table.weight.grad
    token_embeddings.zero_grad()
    token_embeddings.bfloat16()
    expected = layer_.cross_entropy(hidden.bfloat16(), target)
    expected.backward()
    assert found.dtype == gradient.dtype == torch.float32 and found == expected
    assert torch.equal(gradient, token_embeddings.table.weight.grad.float())


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
