"""Paraphrase classification (U5): literal batches, the loss by hand, negatives."""

import math

import numpy as np
import pytest
import torch
from tiny_data import write_items, write_mined

from fairseq_xl.data.corpora.mixed_corpus import MixedCorpus
from fairseq_xl.data.corpora.sentence_pairs import SentencePairs
from fairseq_xl.data.framing import InputLength
from fairseq_xl.data.plan.epoch_plan import ObjectiveSampler, training_plan
from fairseq_xl.errors import UserError

PAD = 1
GENUINE, SECOND_FIRST = 1, 2  # bits of a key


@pytest.fixture
def classifying(build, model):
    """The objective with random negatives, and a model with its head."""
    objective = build("paraphrase", "paraphrase.negatives=random")
    model.add_heads(objective.heads(model.cfg))
    torch.nn.init.normal_(model.heads["paraphrase"][1].weight, std=0.5)
    return objective, model.double().eval()


def test_batch(classifying, pairs, spec):
    """4 5 6 | 14 and 7 | 15 16: the only negative is the other pair's second sentence."""
    keys = [GENUINE, 0, GENUINE | SECOND_FIRST, SECOND_FIRST]
    batch = classifying[0].collate(spec([0, 0, 1, 1], [key + 16 for key in keys]), pairs)
    assert batch["target"].tolist() == [1, 0, 1, 0]
    assert batch["tokens"].tolist() == [
        [0, 4, 5, 6, 2, 2, 14, 2, PAD],
        [0, 4, 5, 6, 2, 2, 15, 16, 2],
        [0, 15, 16, 2, 2, 7, 2, PAD, PAD],
        [0, 14, 2, 2, 7, 2, PAD, PAD, PAD],
    ]
    assert batch["positions"][1].tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3]
    languages = batch["languages"].tolist()  # de 0, en 1
    assert languages[1] == [1] * 5 + [0] * 4 and languages[3][:6] == [0] * 3 + [1] * 3
    assert torch.equal(batch["padding_mask"], batch["tokens"] == PAD)


def test_positives_and_negatives_are_one_to_one(classifying, pairs, spec):
    keys = np.random.default_rng(5).integers(2**64, size=4000, dtype=np.uint64)
    batch = classifying[0].collate(spec([0] * 4000, keys), pairs)
    assert batch["target"].double().mean() == pytest.approx(0.5, abs=0.03)  # 3.8 standard deviations
    german_first = (batch["tokens"][:, 1] >= 14).double()
    assert german_first.mean() == pytest.approx(0.5, abs=0.03)
    assert abs(torch.corrcoef(torch.stack([batch["target"].double(), german_first]))[0, 1]) < 0.06


def test_loss_by_hand(classifying, pairs, spec):
    """The cross-entropy of the first token's two logits."""
    objective, model = classifying
    batch = objective.collate(spec([0, 1], [GENUINE, 0]), pairs)
    term = model(objective.loss, batch)["paraphrase"]
    hidden = model.encode(
        batch["tokens"], positions=batch["positions"], languages=batch["languages"], padding_mask=batch["padding_mask"]
    )
    layer, expected = model.heads["paraphrase"][1], 0.0
    for row, label in zip(hidden, (1, 0)):
        scores = [(layer.weight[n] @ row[0] + layer.bias[n]).item() for n in (0, 1)]
        expected -= scores[label] - math.log(sum(math.exp(score) for score in scores))
    assert term.sum.item() == pytest.approx(expected, rel=1e-6) and term.count == 2


def test_the_classifier_has_the_models_dropout(build, model, pairs, spec):
    """In training only; the encoder of this test has none."""
    objective = build("paraphrase", "paraphrase.negatives=random")
    model.cfg.dropout = 0.5
    model.add_heads(objective.heads(model.cfg))
    torch.nn.init.normal_(model.heads["paraphrase"][1].weight, std=0.5)
    batch, model = objective.collate(spec([0, 1], [GENUINE, 0]), pairs), model.double()
    assert model.heads["paraphrase"][0].p == 0.5
    losses = {
        mode: {model.train(mode)(objective.loss, batch)["paraphrase"].sum.item() for _ in range(8)}
        for mode in (True, False)
    }
    assert len(losses[True]) > 1 and len(losses[False]) == 1


def test_a_batch_is_the_sum_of_its_examples(classifying, check_sums, pairs, spec):
    examples, keys = [0, 1, 1], [GENUINE, SECOND_FIRST, GENUINE]
    alone = [spec([example], [key]) for example, key in zip(examples, keys)]
    check_sums(classifying[0], pairs, spec(examples, keys), alone)


def test_mined_negatives_are_the_default(build, pairs, spec):
    objective = build("paraphrase")
    with pytest.raises(UserError, match="no mined negatives; recipes/unicoder/mine.sh trains the model"):
        objective.collate(spec([0], [0]), pairs)
    write_mined(pairs, [[0], [0]])
    batch = objective.collate(spec([0, 1], [0, 0]), pairs)  # not what a miner would write: it tells the two apart
    assert batch["tokens"].tolist() == [[0, 4, 5, 6, 2, 2, 14, 2], [0, 7, 2, 2, 14, 2, PAD, PAD]]


@pytest.mark.parametrize("mined", [False, True])
@pytest.mark.parametrize("mixed", [False, True])
def test_batches_keep_their_limit_whatever_negatives_are_drawn(build, tmp_path, mined, mixed):
    """First sides are short, second sides have 1 to 60 words: a negative may be much longer than the translation."""
    rng = np.random.default_rng(2)
    for code, longest in (("en", 4), ("de", 60)):
        items = [[*rng.integers(4, 20, size).tolist(), 2] for size in rng.integers(1, longest + 1, size=3000)]
        write_items(tmp_path / f"many.en-de.{code}", items)
    pairs = SentencePairs(tmp_path / "many.en-de", "en", "de")
    mined_lines = np.argsort(-pairs.sizes[:, 1])[:3000, None]  # the shortest gets the longest
    lines = np.empty((3000, 1), dtype=np.int32)
    lines[np.argsort(pairs.sizes[:, 1])] = mined_lines
    write_mined(pairs, lines)
    objective = build("paraphrase", f"paraphrase.length=64 paraphrase.negatives={'mined' if mined else 'random'}")
    corpus = MixedCorpus({"en-de": pairs}, 0) if mixed else pairs
    sampler = ObjectiveSampler("paraphrase", {"any": corpus}, InputLength(64, 2, 65), 512, None, 0, objective.lengths)
    padded = [
        objective.collate(batch, corpus)["tokens"].numel()
        for batch in training_plan([sampler], "cycle", 1, 1, 60, 1, 1)
    ]
    assert max(padded) <= 512 and np.mean(padded) > 300


def test_options(build):
    for name in ("paraphrase", "paraphrase_similarity", "word_recovery"):
        assert build(name).cfg.length == 128  # U3
    with pytest.raises(UserError, match="negatives=hard should be mined or random"):
        build("paraphrase", "paraphrase.negatives=hard")
