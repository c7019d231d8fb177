"""What dropout drops, how often, and what it leaves."""

import pytest
import torch

from fairseq_xl.modules.dropout import Dropout, draw_keep_mask


@pytest.mark.parametrize("probability", [0.1, 0.5])
def test_as_many_values_are_dropped_as_asked_for(probability):
    torch.manual_seed(0)
    hidden = torch.ones(1000, 999)
    found = Dropout(probability)(hidden)
    # 999,000 draws: the share's standard deviation is at most 0.0005
    assert abs((found == 0).float().mean() - probability) < 0.003
    assert abs(found.mean() - 1) < 0.006
    torch.testing.assert_close(found[found != 0].unique(), torch.tensor([1 / (1 - probability)]), rtol=1e-4, atol=0)


def test_what_is_dropped_depends_on_no_place():
    torch.manual_seed(0)
    keep_mask, _ = draw_keep_mask((4096, 8), 0.25)
    assert ((~keep_mask).float().mean(dim=0) - 0.25).abs().max() < 0.03  # each of the values that share a draw
    together = (~keep_mask[:, :-1] & ~keep_mask[:, 1:]).float().mean(dim=0)
    assert (together - 0.25**2).abs().max() < 0.02  # neighbors are independent


def test_the_rest_is_scaled_by_what_is_really_dropped():
    _, factor = draw_keep_mask((4,), 0.1)  # 6554 of 65536
    assert factor == 65536 / (65536 - 6554)
    keep_mask, factor = draw_keep_mask((1000,), 0.0)
    assert keep_mask.all() and factor == 1.0


def test_a_probability_that_rounds_to_1_drops_nearly_all():
    keep_mask, factor = draw_keep_mask((1000,), 1 - 2**-18)
    assert factor == 65536 and keep_mask.float().mean() < 0.01


def test_gradients_pass_where_values_do():
    hidden = torch.ones(7, 5, requires_grad=True)
    found = Dropout(0.5)(hidden)
    found.sum().backward()
    assert torch.equal(hidden.grad, found.detach()) and 0 < (found == 0).sum() < 35


@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (5, 3), (2, 3, 4)])
def test_any_shape(shape):
    found = Dropout(0.5)(torch.ones(shape))
    assert found.shape == shape and set(found.flatten().tolist()) <= {0.0, 2.0}


def test_torchs_seed_decides():
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(draw_keep_mask((100,), 0.5)[0])
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])


def test_nothing_is_dropped_outside_training_or_without_probability():
    hidden = torch.randn(10)
    assert Dropout(0.5).eval()(hidden) is hidden and Dropout(0.0)(hidden) is hidden
