"""Translation language modeling (X7): literal batches, losses."""

import math

import numpy as np
import pytest

PAD, MASK = 1, 20
NOTHING = "tlm.mask_prob=0"
ALL_MASKED = "tlm.mask_prob=1 tlm.mask_token_prob=1 tlm.random_token_prob=0"


def test_batch(build, pairs, spec):
    """Positions start anew and languages change with the second half. Even keys put English first, odd ones German."""
    batch = build("tlm", NOTHING).collate(spec([0, 1], [6, 8]), pairs)
    assert batch["tokens"].tolist() == [[0, 4, 5, 6, 2, 2, 14, 2], [0, 7, 2, 2, 15, 16, 2, PAD]]
    assert batch["positions"].tolist() == [[0, 1, 2, 3, 4, 0, 1, 2], [0, 1, 2, 0, 1, 2, 3, 0]]
    assert batch["languages"].tolist() == [[1, 1, 1, 1, 1, 0, 0, 0], [1, 1, 1, 0, 0, 0, 0, 0]]
    assert batch["padding_mask"].tolist() == [[False] * 8, [False] * 7 + [True]]


def test_batch_the_other_way_round(build, pairs, spec):
    batch = build("tlm", NOTHING).collate(spec([0], [7]), pairs)
    assert batch["tokens"].tolist() == [[0, 14, 2, 2, 4, 5, 6, 2]]
    assert batch["positions"].tolist() == [[0, 1, 2, 0, 1, 2, 3, 4]]
    assert batch["languages"].tolist() == [[0, 0, 0, 1, 1, 1, 1, 1]]
    assert batch["padding_mask"] is None


def test_both_sides_are_masked(build, pairs, spec):
    batch = build("tlm", ALL_MASKED).collate(spec([0], [6]), pairs)
    assert batch["tokens"].tolist() == [[0, MASK, MASK, MASK, 2, 2, MASK, 2]]
    assert batch["predicted_positions"].tolist() == [1, 2, 3, 6]
    assert batch["target"].tolist() == [4, 5, 6, 14]


def test_the_order_of_the_sides_is_drawn_evenly(build, pairs, spec):
    keys = np.random.default_rng(0).integers(2**64, size=2000, dtype=np.uint64)
    batch = build("tlm", NOTHING).collate(spec([0] * 2000, keys), pairs)
    assert (batch["tokens"][:, 1] == 4).double().mean().item() == pytest.approx(0.5, abs=0.045)  # deviation 0.011


def test_noise_is_independent_of_the_order_of_the_sides(build, pairs, spec):
    """The first bit of the key chooses the order; masking must not depend on it."""
    objective = build("tlm", f"{ALL_MASKED} tlm.mask_prob=0.25 tlm.frequency_exponent=0")
    keys = np.random.default_rng(1).integers(2**64, size=4000, dtype=np.uint64)
    for bit in (0, 1):
        part = keys[(keys & np.uint64(1)) == bit]
        masked = objective.collate(spec([0] * len(part), part), pairs)["tokens"].numpy() == MASK
        pieces = [1, 2, 3, 6] if bit == 0 else [1, 4, 5, 6]
        assert masked[:, pieces].mean(0) == pytest.approx(np.full(4, 0.25), abs=0.04)  # 2000: deviation 0.0097


def test_loss_by_hand(build, pairs, spec, fixed_logits):
    """Seven targets: 1/2 three times, 1/4 three times, 1/8 once: 12 bits."""
    objective = build("tlm", ALL_MASKED)
    batch = objective.collate(spec([0, 1], [6, 9]), pairs)
    model = fixed_logits(batch, [1 / 2, 1 / 4, 1 / 2, 1 / 4, 1 / 2, 1 / 4, 1 / 8])
    terms = objective.loss(model, batch)
    assert list(terms) == ["tlm"]
    assert terms["tlm"].sum.item() == pytest.approx(12 * math.log(2))
    assert terms["tlm"].count == 7
    assert model.arguments["positions"] is batch["positions"] and model.arguments["languages"] is batch["languages"]


def test_a_prediction_sees_the_other_language(build, pairs, spec, model):
    objective = build("tlm", NOTHING)
    batch = objective.collate(spec([0], [6]), pairs)
    positions = batch["predicted_positions"]
    batch |= {"predicted_positions": positions.new_tensor([2]), "target": positions.new_tensor([5])}
    before = model(objective.loss, batch)["tlm"].sum.item()
    tokens = batch["tokens"].clone()
    tokens[0, 6] = 18
    assert abs(model(objective.loss, batch | {"tokens": tokens})["tlm"].sum.item() - before) > 1e-4


def test_a_batch_is_the_sum_of_its_examples(build, pairs, spec, check_sums):
    objective = build("tlm", "tlm.mask_prob=0.6")
    check_sums(objective, pairs, spec([0, 1], [6, 9]), [spec([0], [6]), spec([1], [9])])
