"""Causal language modeling (X4): literal batches, losses worked out by hand and by torch."""

import math

import pytest
import torch
from torch.nn import functional as F

PAD = 1


def test_batch(build, stream, spec):
    """Blocks 4 5 6 7 and 12 2 with <s> in front; every token predicts the next."""
    batch = build("clm", "clm.length=5").collate(spec([0, 10]), stream)
    assert batch["tokens"].tolist() == [[0, 4, 5, 6], [0, 12, 2, PAD]]
    assert batch["predicted_positions"].tolist() == [0, 1, 2, 3, 4, 5]
    assert batch["target"].tolist() == [4, 5, 6, 7, 12, 2]
    assert batch["languages"].tolist() == [[1], [1]]


def test_loss_by_hand(build, stream, spec, fixed_logits):
    """Targets with probabilities 1/2, 1/4, 1/8 and 1/2, 1/2: 8 bits."""
    objective = build("clm", "clm.length=4")
    batch = objective.collate(spec([0, 10]), stream)
    model = fixed_logits(batch, [1 / 2, 1 / 4, 1 / 8, 1 / 2, 1 / 2])
    terms = objective.loss(model, batch)
    assert list(terms) == ["clm"]
    assert terms["clm"].sum.item() == pytest.approx(8 * math.log(2))
    assert (terms["clm"].count, terms["clm"].weight) == (5, 1.0)
    assert model.arguments["causal"] is True


def test_loss_is_torchs_cross_entropy_on_shifted_targets(build, stream, spec, model):
    objective = build("clm", "clm.length=5")
    batch = objective.collate(spec([0, 10]), stream)
    shifted = torch.tensor([[4, 5, 6, 7], [12, 2, PAD, PAD]])
    logits = objective.scores(model, batch)[0]
    expected = F.cross_entropy(logits.transpose(1, 2), shifted, ignore_index=PAD, reduction="sum")
    assert model(objective.loss, batch)["clm"].sum.item() == pytest.approx(expected.item())


def test_a_prediction_does_not_see_what_it_predicts(build, stream, spec, model):
    objective = build("clm", "clm.length=6")
    batch = objective.collate(spec([0]), stream)
    scores = objective.scores(model, batch)[0]
    changed = batch | {"tokens": batch["tokens"].clone()}
    changed["tokens"][0, 3] = 9
    others = objective.scores(model, changed)[0]
    torch.testing.assert_close(others[0, :3], scores[0, :3])
    assert (others[0, 3:] - scores[0, 3:]).abs().amax(1).min() > 1e-3


def test_a_batch_is_the_sum_of_its_examples(build, stream, spec, check_sums):
    check_sums(build("clm", "clm.length=5"), stream, spec([0, 4, 10]), [spec([0]), spec([4]), spec([10])])
