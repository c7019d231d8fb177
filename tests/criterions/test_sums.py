"""The log of labelled objectives and of generation, with numbers worked out by hand: nothing waits for the device."""

import math
from types import SimpleNamespace

import pytest
import torch

import fairseq_xl
from fairseq_xl.criterions.combined import CombinedCriterion
from fairseq_xl.data.framing import Framing
from fairseq_xl.engine.metrics import Metrics
from fairseq_xl.objectives.classification import Classification
from fairseq_xl.objectives.generation import Generation, GenerationConfig
from fairseq_xl.objectives.translation import DirectedTranslation, TranslationConfig
from tests.waits import no_waits

fairseq_xl.register()

LN2 = math.log(2)


def criterion_of(objective, corpora=()):
    criterion = CombinedCriterion(SimpleNamespace(target_dictionary=None))
    criterion.set_objectives({objective.name: objective}, {objective.name: corpora})
    return criterion


def logged_without_a_sync(criterion, *updates):
    """The values of updates, each a list of logging outputs; fails if one of them waits for the device."""
    metrics = Metrics()
    with no_waits() as waits:
        for update in updates:
            criterion.log(metrics, update)
    assert waits.operators
    return metrics.values()


def output(loss, size, sums, counts):
    tensors = {"sums": sums, "counts": counts}
    tensors = {key: torch.tensor(value, dtype=torch.double) for key, value in tensors.items()}
    return {"loss": torch.tensor(loss * LN2), "sample_size": size} | tensors


@pytest.fixture
def generation(dictionary):
    objective = Generation(GenerationConfig(), dictionary, Framing.of("xl", dictionary), named=False)
    return criterion_of(objective, ["en", "de", "fr"])


@pytest.mark.parametrize("size", [3, torch.tensor(3.0, dtype=torch.double)], ids=["one process", "several"])
def test_loss_is_logged_without_a_sync(generation, size):
    """(6 + 3) bits over 3 + 3 losses."""
    updates = [[output(bits, size, [0] * 3, [0] * 3)] for bits in (6, 3)]
    assert logged_without_a_sync(generation, *updates) == {"loss": 1.5, "ppl": None}


def test_sizes_are_added_up_in_float64(generation):
    """16777217 losses are not 16777216."""
    metrics = Metrics()
    for _ in range(2):
        generation.log(metrics, [output(1, 2**24 + 1, [0] * 3, [0] * 3)])
    assert metrics.periods[""]["_losses"].read()["loss"][1] == 2 * (2**24 + 1)


def test_no_loss_has_no_value(generation):
    assert logged_without_a_sync(generation, [output(0, 0, [0] * 3, [0] * 3)]) == {"loss": None, "ppl": None}


def test_generation_is_logged_without_a_sync(generation):
    """English: 4 bits over 2 tokens, German 3 over 1: perplexities 4 and 8. French was not drawn."""
    updates = [
        [output(4, 2, [4 * LN2, 0, 0], [2, 0, 0]), output(3, 1, [0, 3 * LN2, 0], [0, 1, 0])],
        [output(5, 1, [0] * 3, [0] * 3)],
    ]
    values = logged_without_a_sync(generation, *updates)
    assert values == {"loss": 3.0, "nll_loss": 2.333, "ppl_en": 4.0, "ppl_de": 8.0, "ppl": 6.0}


def test_scores_of_translations_are_logged_without_a_sync(dictionary):
    """Statistics come first in the sums; of two updates, 2 and 4 pieces for 4 and 2 of the sources."""
    objective = DirectedTranslation(
        TranslationConfig(directions="en-de"), dictionary, Framing.of("xl", dictionary), named=False
    )
    keys = [("pieces", "en-de"), ("source_pieces", "en-de")]

    def values(sums):
        pieces, sources = (sums["translation"][name]["en-de"][0] for name, _ in keys)
        return {"length_ratio_en-de": pieces / sources}

    objective.scorer = type("Scorer", (), {"keys": keys, "values": staticmethod(values)})()
    updates = [[output(4, 2, [*counts, 4 * LN2], [0, 0, 2])] for counts in ((2, 4), (4, 2))]
    found = logged_without_a_sync(criterion_of(objective, ["en-de"]), *updates)
    assert found == {"loss": 2.0, "nll_loss": 2.0, "ppl": 4.0, "ppl_en-de": 4.0, "length_ratio_en-de": 1.0}


def test_fine_tuning_is_logged_without_a_sync(dictionary):
    """English: 3 of 4 right in two updates; German: none of 2. A batch without a label counts as no loss."""
    made = type("Any", (Classification,), {"name": "any", "statistics": ("correct", "of no use")})
    made.training_statistics = None
    objective = made(Classification.Config(), dictionary, Framing.of("xl", dictionary), named=False)
    zeros = [0] * 9
    updates = [
        [output(bits, size, [*examples, *correct, 0, 0, 0], zeros)]  # de, en, fr
        for bits, size, examples, correct in (
            (8, 4, [2, 2, 0], [0, 1, 0]),
            (3, 2, [0, 2, 0], [0, 2, 0]),
            (0, 0, [0] * 3, [0] * 3),
        )
    ]
    values = logged_without_a_sync(criterion_of(objective), *updates)
    assert values == {"loss": 1.833, "accuracy_en": 75.0, "accuracy_de": 0.0, "accuracy": 37.5}
