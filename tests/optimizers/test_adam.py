"""Adam: fairseq's updates, what it leaves alone, a few operations for any number of parameters, and exact resuming."""

import contextlib
from collections import Counter

import pytest
import torch
from fairseq.optim import adam as fairseq_adam
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_xl.errors import UserError
from fairseq_xl.optimizers import adam as module, float32_state
from fairseq_xl.optimizers.adam import Adam
from fairseq_xl.optimizers.lamb import Lamb
from tests.commands import equal_parameters, load, pretraining, run_train
from tests.devices import DEVICES, no_sync, relative_error

SETTINGS = dict(lr=0.1, betas=(0.5, 0.75), eps=0.0, weight_decay=0.5)
SHAPES = [(5, 3), (7,), (2, 3, 4), ()]


def parameters(dtype=torch.float32, shapes=SHAPES, device="cpu"):
    """Random parameters, the same in each call."""
    generator = torch.Generator().manual_seed(1)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator).to(device, dtype)) for shape in shapes]


def train(optimizer, weights, steps, dtype=torch.float32, checked=False):
    """Makes updates with random gradients, some missing, and a learning rate that falls; the same for any optimizer.

    With `checked` it fails if an update waits for the GPU.
    """
    generator = torch.Generator().manual_seed(2)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 0.05 / (1 + step)
        for number, parameter in enumerate(weights):
            gradient = torch.randn(parameter.shape, generator=generator) * 10.0 ** (-number)
            parameter.grad = None if (step + number) % 3 == 0 else gradient.to(parameter.device, dtype)
        with no_sync(parameter.device.type) if checked else contextlib.nullcontext():
            optimizer.step()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "foreach"])
@pytest.mark.parametrize("eps", [1e-8, 1e-2])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_the_updates_are_those_of_fairseq(monkeypatch, fused, eps, decay, device):
    """Over 50 updates. With an eps of 1e-2 in torch's form, first updates would be up to 3 times as large."""
    if not fused:
        monkeypatch.setattr(module, "FUSED", ())
    settings = dict(lr=0.1, betas=(0.9, 0.98), eps=eps, weight_decay=decay)
    ours, theirs = parameters(device=device), parameters(device=device)
    one, other = Adam(ours, **settings), fairseq_adam.Adam(theirs, **settings)
    train(one, ours, 50)
    train(other, theirs, 50)
    for mine, its in zip(ours, theirs):
        torch.testing.assert_close(mine, its, rtol=2e-6, atol=2e-6)
        assert set(one.state[mine]) == set(other.state[its]) and one.state[mine]["step"] == other.state[its]["step"]
        for name in ("exp_avg", "exp_avg_sq"):
            torch.testing.assert_close(one.state[mine][name], other.state[its][name], rtol=2e-6, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("chunk", [1, 20, 2**25])
def test_16_bits_have_a_state_of_32(monkeypatch, dtype, chunk):
    """Parameters alone, without masters, as fairseq updates them; in chunks of any size."""
    monkeypatch.setattr(float32_state, "CHUNK", chunk)
    settings = dict(lr=0.1, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.1)
    ours, theirs = parameters(dtype), parameters(dtype)
    one, other = Adam(ours, **settings), fairseq_adam.Adam(theirs, **settings)
    train(one, ours, 10, dtype)
    train(other, theirs, 10, dtype)
    for mine, its in zip(ours, theirs):
        assert mine.dtype == dtype and one.state[mine]["exp_avg"].dtype == torch.float32
        torch.testing.assert_close(one.state[mine]["exp_avg_sq"], other.state[its]["exp_avg_sq"], rtol=2e-6, atol=1e-9)
        torch.testing.assert_close(mine, its, rtol=2 * torch.finfo(dtype).eps, atol=1e-6)


def test_the_first_update_by_hand():
    """m / (1 - b1) = g and v / (1 - b2) = g^2: x = 0.95 x - 0.1 sign(g)."""
    parameter = torch.nn.Parameter(torch.tensor([3.0, -4.0]))
    parameter.grad = torch.tensor([2.0, -8.0])
    Adam([parameter], **SETTINGS).step()
    torch.testing.assert_close(parameter.detach(), torch.tensor([2.75, -3.7]))


@pytest.mark.parametrize("kind", [Adam, Lamb])
def test_what_has_no_gradient_stays_and_so_does_its_state(kind):
    one, other = (torch.nn.Parameter(torch.full((2, 2), 3.0)) for _ in range(2))
    optimizer = kind([one, other], **SETTINGS)
    one.grad, other.grad = torch.ones(2, 2), torch.ones(2, 2)
    optimizer.step()
    kept = {"weights": other.detach().clone()} | {
        name: torch.as_tensor(v).clone() for name, v in optimizer.state[other].items()
    }
    other.grad = None
    optimizer.step()
    found = {"weights": other.detach()} | optimizer.state[other]
    assert all(torch.equal(torch.as_tensor(found[name]), value) for name, value in kept.items())
    assert optimizer.state[one]["step"] == 2 and not torch.equal(one, other)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", [Adam, Lamb])
def test_an_update_has_no_sync_and_the_weights_of_one_on_cpu(kind, dtype, device):
    settings = SETTINGS | dict(eps=1e-6)
    weights, expected = parameters(dtype, device=device), parameters(dtype)
    optimizer = kind(weights, **settings)
    train(optimizer, weights, 4, dtype, checked=True)
    train(kind(expected, **settings), expected, 4, dtype)
    for one, other in zip(weights, expected):
        assert relative_error(one, other) < (1e-5 if dtype == torch.float32 else 1e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", [Adam, Lamb])
def test_an_update_has_no_sync_on_meta(kind, dtype, monkeypatch):
    """Where numbers of the host that are copied to a GPU are found too."""
    monkeypatch.setattr(module, "FUSED", (*module.FUSED, "meta"))
    weights = [torch.nn.Parameter(each.detach().to("meta")) for each in parameters(dtype)]
    optimizer = kind(weights, **SETTINGS)
    for parameter in weights:
        parameter.grad = torch.zeros_like(parameter)
    with no_sync("meta"):
        optimizer.step()


def test_gradients_of_another_layout():
    """A transposed gradient, which fused kernels of CUDA refuse: they get a copy in the layout of the parameter."""
    weights, expected = parameters(shapes=[(5, 3)]), parameters(shapes=[(5, 3)])
    gradient = torch.arange(1.0, 16).view(5, 3)
    weights[0].grad, expected[0].grad = gradient.t().contiguous().t(), gradient
    assert not weights[0].grad.is_contiguous() and float32_state.gradients(weights)[0].stride() == weights[0].stride()
    assert float32_state.gradients(expected)[0] is expected[0].grad
    for optimizer in (Adam(weights, **SETTINGS), Adam(expected, **SETTINGS)):
        optimizer.step()
    assert torch.equal(weights[0], expected[0])


class Operations(TorchDispatchMode):
    """Counts the operations on tensors that run inside."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if not function.overloadpacket.__name__.startswith("_record_function"):  # marks for profilers
            self.counts[function.overloadpacket.__name__] += 1
        return function(*args, **kwargs or {})


def operations(optimizer, weights):
    """What the second update of an optimizer runs."""
    for parameter in weights:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    with Operations() as found:
        optimizer.step()
    return found.counts


@pytest.mark.parametrize("dtype, copies", [(torch.float32, 0), (torch.bfloat16, 3)])
def test_an_update_is_four_operators_for_any_number_of_parameters(dtype, copies):
    """The counts of their updates, made, split and increased, and Adam; fairseq's runs 7 a parameter or more.

    16 bits alone take three copies more: of all weights and gradients to float32, and of all weights back.
    """
    weights = parameters(dtype, [(2, 2)] * 300)
    counts = operations(Adam(weights, **SETTINGS), weights)
    del counts["empty_like"]  # allocates on the host
    expected = {"full": 1, "unbind": 1, "_foreach_add_": 1, "_fused_adamw_": 1, "_foreach_copy_": copies}
    assert counts == Counter(expected)


def line(data, folder, *more, optimizer="xl_adam"):
    command = pretraining(data, folder, "--updates-per-epoch", 3, "--disable-validation", objectives="mlm")
    return [*command, "--optimizer", optimizer, "--weight-decay", 0.1, "--adam-betas", "(0.9, 0.98)", *more]


@pytest.mark.parametrize("form", ["fp32", "bf16", "memory-efficient-bf16"])
def test_a_stopped_run_resumes_bit_by_bit(data_bin, tmp_path, form):
    """Those of fp16: tests/engine/test_updates.py."""
    more = [] if form == "fp32" else [f"--{form}"]
    whole = run_train(line(data_bin, tmp_path / "whole", "--max-update", 5, *more))
    parts = [run_train(line(data_bin, tmp_path / "parts", "--max-update", stop, *more)) for stop in (2, 5)]
    assert [loss for part in parts for loss in part.losses] == whole.losses and len(set(whole.losses)) == 5
    assert equal_parameters(*(load(tmp_path / name / "checkpoint_last.pt") for name in ("whole", "parts")))


@pytest.mark.parametrize("first, second, form", [("adam", "xl_adam", "bf16"), ("xl_adam", "adam", "fp32")])
def test_checkpoints_of_fairseqs_adam_resume_and_the_other_way_round(data_bin, tmp_path, first, second, form):
    """The whole run is one of fairseq's; without the state of Adam the last losses would differ."""
    more = ["--lr", 0.01] if form == "fp32" else ["--lr", 0.01, f"--{form}"]
    whole = run_train(line(data_bin, tmp_path / "whole", "--max-update", 5, *more, optimizer="adam"))
    parts = [
        run_train(line(data_bin, tmp_path / "parts", "--max-update", stop, *more, optimizer=name))
        for stop, name in ((2, first), (5, second))
    ]
    found = [float.fromhex(loss) for part in parts for loss in part.losses]
    expected = [float.fromhex(loss) for loss in whole.losses]
    assert found == pytest.approx(expected, rel=1e-5 if form == "fp32" else 1e-3)


@pytest.mark.parametrize("betas", ["0.9", "(0.9, 1)", "nonsense", "(0.9, 0.9, 0.9)"])
def test_betas_that_are_none(data_bin, tmp_path, betas):
    with pytest.raises(UserError, match="--adam-betas") as refused:
        run_train(line(data_bin, tmp_path, "--max-update", 1, "--adam-betas", betas))
    assert "\n" not in str(refused.value)
