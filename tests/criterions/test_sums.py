"""The log of fine-tuning and of same-language generation, with numbers worked out by hand."""

import math
from types import SimpleNamespace

import pytest
import torch

import fairseq_xl
from fairseq_xl.criterions.finetuning import FineTuningCriterion
from fairseq_xl.criterions.generation import log_languages
from fairseq_xl.criterions.sums import log_losses
from fairseq_xl.engine.metrics import Metrics
from fairseq_xl.tasks.language_metrics import LanguageMetrics
from tests.waits import no_waits

fairseq_xl.register()

LN2 = math.log(2)


def logged_without_a_sync(metrics, log, *updates):
    """The values of updates that `log` logs; fails if one of them waits for the device."""
    with no_waits() as waits:
        for update in updates:
            log(metrics, update)
    assert waits.operators
    return metrics.values()


@pytest.mark.parametrize("size", [3, torch.tensor(3.0, dtype=torch.double)], ids=["one process", "several"])
def test_loss_is_logged_without_a_sync(size):
    """(6 + 3) bits over 3 + 3 losses, in float64: 16777217 losses are not 16777216."""
    metrics, losses = Metrics(), (torch.tensor(6 * LN2), torch.tensor(3 * LN2))
    assert logged_without_a_sync(metrics, lambda to, loss: log_losses(to, loss, size), *losses) == {"loss": 1.5}
    for _ in range(2):
        logged_without_a_sync(metrics, lambda to, loss: log_losses(to, loss, 2**24 + 1), torch.zeros(()))
    assert metrics.periods[""]["_losses"].read()["loss"][1] == 2 * (2**24 + 1) + 6


def test_no_loss_has_no_value():
    values = logged_without_a_sync(Metrics(), lambda metrics, loss: log_losses(metrics, loss, 0), torch.zeros(()))
    assert values == {"loss": None}


def test_generation_is_logged_without_a_sync():
    """English: 4 bits over 2 tokens, German 3 over 1: perplexities 4 and 8. French was not drawn."""
    names = ["loss", "en", "de", "fr"]

    def output(loss, size, sums, counts):
        tensors = {"sums": [value * LN2 for value in sums], "counts": counts}
        tensors = {key: torch.tensor(value, dtype=torch.double) for key, value in tensors.items()}
        return {"loss": torch.tensor(loss * LN2), "sample_size": size} | tensors

    updates = [
        [output(4, 2, [4, 0, 0], [2, 0, 0]), output(3, 1, [0, 3, 0], [0, 1, 0])],
        [output(5, 1, [0] * 3, [0] * 3)],
    ]
    values = logged_without_a_sync(Metrics(), lambda metrics, outputs: log_languages(metrics, outputs, names), *updates)
    assert values == {"loss": 3.0, "ppl_en": 4.0, "ppl_de": 8.0, "ppl": 6.0}


class Task:
    """A stand-in for a fairseq task: it logs what the criterion logs."""

    def log(self, metrics, logging_outputs, criterion):
        criterion.log(metrics, logging_outputs)


class Classification(LanguageMetrics, Task):
    """Accuracy by language."""

    datasets = {"train": None}
    dictionary = SimpleNamespace(languages=["en", "de", "fr"])
    type = SimpleNamespace(
        training_statistics=("correct",),
        metrics=lambda: {"accuracy": lambda sums: 100 * sums["correct"] / sums["examples"]},
    )


def test_fine_tuning_is_logged_without_a_sync():
    """English: 3 of 4 right in two updates; German: none of 2. A batch without a label counts as one loss of 0."""

    def output(loss, size, examples, correct):
        counted = torch.tensor([examples, correct], dtype=torch.float32)
        return [{"loss": torch.tensor(loss * LN2), "sample_size": size, "counted": counted}]

    updates = [output(8, 4, [2, 2, 0], [1, 0, 0]), output(3, 2, [2, 0, 0], [2, 0, 0]), output(0, 0, [0] * 3, [0] * 3)]
    values = logged_without_a_sync(
        Metrics(), lambda metrics, outputs: Classification().log(metrics, outputs, FineTuningCriterion), *updates
    )
    assert values == {"loss": 1.571, "accuracy_en": 75.0, "accuracy_de": 0.0, "accuracy": 37.5}
