"""LAMB: the update rule worked out by hand, what it leaves alone, and exact resuming through fairseq-train (M6)."""

import math

import pytest
import torch

from fairseq_xl.errors import UserError
from fairseq_xl.modules.attention import CrossAttention, SelfAttention
from fairseq_xl.optimizers.lamb import Lamb
from tests.commands import equal_parameters, load, pretraining, run_train

SETTINGS = dict(lr=0.1, betas=(0.5, 0.75), eps=0.0, weight_decay=0.5)


def stepped(parameter, *gradients, **settings):
    """The parameter after an update for each of `gradients`."""
    parameter = torch.nn.Parameter(parameter)
    optimizer = Lamb([parameter], **SETTINGS | settings)
    for gradient in gradients:
        parameter.grad = gradient
        optimizer.step()
    return parameter.detach()


def test_the_first_update_by_hand():
    """m / (1 - b1) = g and v / (1 - b2) = g^2, so that r = sign(g) + x / 2.

    x = (3, -4), g = (2, -8): r = (1 + 1.5, -1 - 2) = (2.5, -3); |x| = 5, |r| = sqrt(15.25).
    """
    found = stepped(torch.tensor([[3.0, -4.0]]), torch.tensor([[2.0, -8.0]]))
    factor = 0.1 * 5 / math.sqrt(15.25)
    torch.testing.assert_close(found, torch.tensor([[3 - factor * 2.5, -4 + factor * 3]]))


def test_the_second_update_by_hand():
    """g = 2, then 4: m = 1, then 2.5; v = 1, then 0.75 + 4 = 4.75; corrected 2.5 / 0.75, 4.75 / 0.4375.

    A single number has |r| = r, so that each step is lr |x| whatever r: with two numbers it matters.
    """
    found = stepped(torch.tensor([[3.0, 4.0]]), torch.tensor([[2.0, 1.0]]), torch.tensor([[4.0, -1.0]]))
    factor = 0.1 * 5 / math.hypot(2.5, 3)  # r = (1 + 1.5, 1 + 2)
    first = [3 - factor * 2.5, 4 - factor * 3]
    r = [
        (2.5 / 0.75) / math.sqrt(4.75 / 0.4375) + 0.5 * first[0],
        ((0.25 - 0.5) / 0.75) / math.sqrt((0.1875 + 0.25) / 0.4375) + 0.5 * first[1],
    ]
    factor = 0.1 * math.hypot(*first) / math.hypot(*r)
    torch.testing.assert_close(found, torch.tensor([[first[0] - factor * r[0], first[1] - factor * r[1]]]))


def test_vectors_have_no_decay_and_no_trust_ratio():
    found = stepped(torch.tensor([3.0, -4.0]), torch.tensor([2.0, -8.0]))
    torch.testing.assert_close(found, torch.tensor([2.9, -3.9]))


def test_epsilon_is_added_to_the_root():
    """r = g / (|g| + 1) = (2 / 3, -8 / 9); under the root it would be g / sqrt(g^2 + 1)."""
    found = stepped(torch.tensor([3.0, -4.0]), torch.tensor([2.0, -8.0]), eps=1.0)
    torch.testing.assert_close(found, torch.tensor([3 - 0.1 * 2 / 3, -4 + 0.1 * 8 / 9]))


@pytest.mark.parametrize(
    "weights, gradient, expected", [([[0.0, 0.0]], [[2.0, -8.0]], [[-0.1, 0.1]]), ([[3.0, 0.0]], [[0.0, 0.0]], None)]
)
def test_norms_of_zero_make_a_ratio_of_one(weights, gradient, expected):
    found = stepped(torch.tensor(weights), torch.tensor(gradient), weight_decay=0.0, eps=1e-6)
    torch.testing.assert_close(found, torch.tensor(weights if expected is None else expected))


def test_16_bits_have_a_state_of_32():
    parameter = torch.nn.Parameter(torch.ones(2, 2, dtype=torch.bfloat16))
    optimizer = Lamb([parameter], **SETTINGS)
    parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert parameter.dtype == torch.bfloat16 and optimizer.state[parameter]["exp_avg"].dtype == torch.float32


def test_many_updates_are_those_of_each_tensor_alone():
    """Over 20 updates of tensors of several shapes, with the rule written for one tensor."""
    generator = torch.Generator().manual_seed(1)
    settings = dict(lr=0.1, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01)
    weights = [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((4, 3), (5,), (2, 3, 2), ())]
    expected, means, squares = ([tensor.clone().detach() for tensor in weights] for _ in range(3))
    for tensor in means + squares:
        tensor.zero_()
    optimizer = Lamb(weights, **settings)
    for step in range(1, 21):
        for x, m, v, parameter in zip(expected, means, squares, weights):
            g = parameter.grad = torch.randn(x.shape, generator=generator)
            m.copy_(0.9 * m + 0.1 * g)
            v.copy_(0.999 * v + 0.001 * g * g)
            r = m / (1 - 0.9**step) / ((v / (1 - 0.999**step)).sqrt() + 1e-6)
            if x.dim() > 1:
                r = r + 0.01 * x
                r = r * x.norm() / r.norm()
            x.sub_(0.1 * r)
        optimizer.step()
    for x, parameter in zip(expected, weights):
        torch.testing.assert_close(parameter.detach(), x, rtol=1e-5, atol=1e-6)


def test_joined_matrices_have_a_ratio_each():
    """q, k and v as one parameter are updated as three; its bias, of one dimension, has no ratio."""
    projection = SelfAttention(4, 2, 0.0).qkv
    apart = [torch.nn.Parameter(part.detach().clone()) for part in projection.weight.chunk(3)]
    optimizers = [Lamb(weights, **SETTINGS) for weights in ([*projection.parameters()], apart)]
    generator = torch.Generator().manual_seed(1)
    for scales in ([1.0, 10.0, 0.1], [0.1, 1.0, 5.0]):
        gradients = [scale * torch.randn(4, 4, generator=generator) for scale in scales]
        projection.weight.grad = torch.cat(gradients)
        for part, gradient in zip(apart, gradients):
            part.grad = gradient
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(projection.weight.detach(), torch.cat(apart).detach())
    assert CrossAttention(4, 2, 0.0).key_value.weight.matrices == 2


def line(data, folder, *more):
    command = pretraining(
        data, folder, "--optimizer", "xl_lamb", "--updates-per-epoch", 3, "--disable-validation", objectives="mlm"
    )
    return [*command, *more]


@pytest.mark.parametrize("form", ["fp32", "memory-efficient-fp16"])
def test_a_stopped_run_resumes_bit_by_bit(data_bin, tmp_path, form):
    more = [] if form == "fp32" else [f"--{form}", "--fp16-init-scale", 1]
    whole = run_train(line(data_bin, tmp_path / "whole", "--max-update", 5, *more))
    parts = [run_train(line(data_bin, tmp_path / "parts", "--max-update", stop, *more)) for stop in (2, 5)]
    assert [loss for part in parts for loss in part.losses] == whole.losses and len(set(whole.losses)) == 5
    assert equal_parameters(*(load(tmp_path / name / "checkpoint_last.pt") for name in ("whole", "parts")))


def test_16_bits_keep_a_ratio_for_each_tensor(data_bin, tmp_path):
    """fairseq would flatten all parameters into one tensor, and they would share one."""
    more = ["--max-update", 1, "--dropout", 0, "--attention-dropout", 0, "--lr", 0.01, "--weight-decay", 0]
    run_train(line(data_bin, tmp_path / "before", *more[:-4], "--lr", 1e-12))
    run_train(line(data_bin, tmp_path / "after", *more, "--fp16", "--fp16-init-scale", 1))
    before, after = (load(tmp_path / name / "checkpoint_last.pt") for name in ("before", "after"))
    attention = "encoder.layers.0.self_attention"
    for name, count in (("encoder.layers.0.ffn.up", 1), (f"{attention}.out", 1), (f"{attention}.qkv", 3)):
        for old, new in zip(*(weights[f"{name}.weight"].chunk(count) for weights in (before, after))):
            assert (new - old).norm() / old.norm() == pytest.approx(0.01, rel=0.1), name


@pytest.mark.parametrize("betas", ["(0.9, 1)"])  # others: test_adam.py
def test_betas_that_are_none(data_bin, tmp_path, betas):
    with pytest.raises(UserError, match="--lamb-betas") as refused:
        run_train(line(data_bin, tmp_path, "--max-update", 1, "--lamb-betas", betas))
    assert "\n" not in str(refused.value)
