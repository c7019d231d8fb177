"""Masked language modeling (X5): literal batches, rates, a loss worked out by hand."""

import math

import numpy as np
import pytest
import torch
from tiny_data import write_items

from fairseq_xl.data.corpora.sentence_blocks import SentenceBlocks
from fairseq_xl.data.corpora.token_stream import TokenStream

PAD, MASK = 1, 20
ALL_MASKED = "mlm.mask_prob=1 mlm.mask_token_prob=1 mlm.random_token_prob=0 mlm.length=6"


@pytest.fixture
def long(tmp_path):
    """400 times 100 tokens: 50 </s>, one <unk>, one piece 4 with count 1, 48 pieces 19 with count 256."""
    items = [[4 if number % 50 == 0 else 19, 2] for number in range(20_000)]
    items[7::50] = [[3, 2]] * 400
    return TokenStream(write_items(tmp_path / "long", items), "de")


@pytest.mark.parametrize("framing, start", [("xl", 0), ("xlm", 2)])
def test_batch_with_everything_masked(build, stream, spec, framing, start):
    """</s> inside a stream, the front and padding are neither masked nor predicted."""
    batch = build("mlm", ALL_MASKED, framing).collate(spec([5, 10]), stream)
    assert batch["tokens"].tolist() == [[start, MASK, MASK, 2, MASK, MASK], [start, MASK, 2, PAD, PAD, PAD]]
    assert batch["padding_mask"].tolist() == [[False] * 6, [False] * 3 + [True] * 3]
    assert batch["predicted_positions"].tolist() == [1, 2, 4, 5, 7]
    assert batch["target"].tolist() == [8, 9, 10, 11, 12]
    assert batch["languages"].tolist() == [[1], [1]]
    assert "positions" not in batch


def test_blocks_of_whole_sentences(build, stream, spec):
    """With room for 5 tokens of text: 4 5 6 7 2 | 8 9 2 | 10 11 12 2."""
    objective = build("mlm", "mlm.mask_prob=0 mlm.length=6 mlm.sample_break_mode=complete")
    batch = objective.collate(spec([2, 1]), SentenceBlocks(stream.path, "en"))
    assert batch["tokens"].tolist() == [[0, 10, 11, 12, 2], [0, 8, 9, 2, PAD]]
    assert batch["padding_mask"].tolist() == [[False] * 5, [False] * 4 + [True]]


def test_batch_with_nothing_masked(build, stream, spec):
    batch = build("mlm", "mlm.mask_prob=0 mlm.length=6").collate(spec([0, 5]), stream)
    assert batch["tokens"].tolist() == [[0, 4, 5, 6, 7, 2], [0, 8, 9, 2, 10, 11]]
    assert batch["padding_mask"] is None
    assert len(batch["target"]) == len(batch["predicted_positions"]) == 0


def test_rates(build, long, spec):
    objective = build("mlm", "mlm.frequency_exponent=0 mlm.length=101")
    batch = objective.collate(spec(np.arange(400) * 100), long)
    original = long.tokens.reshape(400, 100).astype(np.int64)
    noised = batch["tokens"].numpy()[:, 1:]
    assert len(batch["target"]) / 19_600 == pytest.approx(0.15, abs=0.001)  # 49 pieces a row: 7 or 8
    flat = np.concatenate((np.zeros((400, 1), dtype=np.int64), original), axis=1).ravel()
    assert (flat[batch["predicted_positions"]] == batch["target"].numpy()).all()
    special = original < 4
    assert (noised[special] == original[special]).all()  # </s> and <unk>
    assert set(batch["target"].tolist()) == {4, 19}
    found = batch["tokens"].flatten()[batch["predicted_positions"]]  # 3000: deviation 0.0073
    assert (found == MASK).double().mean().item() == pytest.approx(0.8, abs=0.03)
    assert found.ne(2).all() and found.ge(4).all() and found.le(MASK).all()


def test_rare_pieces_are_predicted_more_often(build, long, spec):
    """Counts 1, 256 weigh 1, 1/16: one prediction among 1 rare and 48 frequent pieces is rare in 1 of 4 rows."""
    objective = build("mlm", "mlm.mask_prob=0.0205 mlm.length=101")  # the default exponent
    batch = objective.collate(spec(np.arange(400) * 100, np.arange(400)), long)
    batches = [objective.collate(spec(np.arange(400) * 100, np.arange(400) + 400 * n), long) for n in range(20)]
    target = np.concatenate([part["target"].numpy() for part in batches])
    assert 400 <= len(batch["target"]) <= 405
    assert (target == 4).mean() == pytest.approx(1 / 4, abs=0.02)  # 8000: deviation 0.0048


def test_loss_by_hand(build, stream, spec, fixed_logits):
    """Five targets with probabilities 1/2, 1/4, 1/8, 1/16, 1/2: 11 bits."""
    objective = build("mlm", ALL_MASKED)
    batch = objective.collate(spec([5, 10]), stream)
    model = fixed_logits(batch, [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 2])
    terms = objective.loss(model, batch)
    assert list(terms) == ["mlm"]
    assert terms["mlm"].sum.item() == pytest.approx(11 * math.log(2))
    assert (terms["mlm"].count, terms["mlm"].weight) == (5, 1.0)
    assert not model.arguments.get("causal", False)


def test_a_prediction_sees_both_sides(build, stream, spec, model):
    objective = build("mlm", "mlm.mask_prob=0 mlm.length=6")
    batch = objective.collate(spec([0]), stream)
    batch |= {"predicted_positions": torch.tensor([3]), "target": torch.tensor([6])}
    before = model(objective.loss, batch)["mlm"].sum.item()
    for position in (1, 4):
        tokens = batch["tokens"].clone()
        tokens[0, position] = 18
        assert abs(model(objective.loss, batch | {"tokens": tokens})["mlm"].sum.item() - before) > 1e-3


def test_a_batch_is_the_sum_of_its_examples(build, stream, spec, check_sums):
    objective = build("mlm", "mlm.mask_prob=0.5 mlm.length=6")
    check_sums(objective, stream, spec([0, 10, 5], [7, 8, 9]), [spec([0], [7]), spec([10], [8]), spec([5], [9])])
