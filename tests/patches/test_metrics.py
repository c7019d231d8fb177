"""Sums of many names on a device: read by name, and restored from checkpoints of this version and of earlier ones."""

import io

import pytest
import torch
from fairseq.logging import metrics
from fairseq.logging.meters import AverageMeter

import fairseq_xl
from fairseq_xl.engine.metrics import log_sums
from tests.waits import Waits

fairseq_xl.register()


@pytest.fixture(autouse=True)
def fresh_metrics():
    metrics.reset()
    yield
    metrics.reset()


def means(found):
    return {f"{name}_mean": total / count for name, (total, count) in found.items()}


def log(totals, counts, names, replaces=""):
    """Logs sums and counts of names in the aggregator `train`; returns its values."""
    with metrics.aggregate("train"):
        log_sums("_sums", torch.tensor([totals, counts], dtype=torch.double), names, means, replaces)
    return dict(metrics.get_smoothed_values("train"))


def reloaded(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def test_names_have_values_once_they_occur_and_none_after_a_reset():
    assert log([6.0, 0.0], [2.0, 0.0], ["en", "de"]) == {"en_mean": 3}
    assert log([2.0, 5.0], [2.0, 1.0], ["en", "de"]) == {"en_mean": 2, "de_mean": 5}
    assert metrics.get_smoothed_value("train", "de_mean") == 5
    with pytest.raises(KeyError):
        metrics.get_smoothed_value("train", "fr_mean")
    metrics.reset_meters("train")
    assert log([0.0, 7.0], [0.0, 1.0], ["en", "de"]) == {"en_mean": None, "de_mean": 7}


def test_a_resumed_run_goes_on_with_the_sums_of_its_checkpoint():
    """Its languages may be others, in another order: (5 + 3) / 2; fr has left and keeps its value until the reset."""
    log([6.0, 5.0, 0.0], [2.0, 1.0, 0.0], ["fr", "de", "en"])
    state = reloaded(metrics.state_dict())
    ((_, key, kind, saved),) = state["train"]
    assert (key, kind, saved["names"]) == ("_sums", "DeviceSums", ["fr", "de"])
    assert saved["sums"].tolist() == [[6.0, 2.0], [5.0, 1.0]]
    metrics.reset()
    metrics.load_state_dict(state)
    assert metrics.state_dict()["train"][0][3]["names"] == ["fr", "de"]  # saved again before the first update
    assert log([4.0, 3.0], [1.0, 1.0], ["en", "de"]) == {"fr_mean": 3, "de_mean": 4, "en_mean": 4}
    metrics.reset_meters("train")
    assert log([4.0, 0.0], [1.0, 0.0], ["en", "de"]) == {"fr_mean": None, "de_mean": None, "en_mean": 4}


def test_meters_of_earlier_versions_are_removed():
    """fairseq never updates them again, so they would show the old values until the end of the epoch."""
    with metrics.aggregate("train"):
        metrics.log_scalar("mlm_en_loss", 9.0, 1)
        metrics.log_scalar("gnorm", 1.5, 1)
    state = reloaded(metrics.state_dict())
    metrics.reset()
    metrics.load_state_dict(state)
    assert log([6.0], [2.0], ["en"], r"(.*_)?loss") == {"en_mean": 3, "gnorm": 1.5}
    assert {key for _, key, _, _ in metrics.state_dict()["train"]} == {"gnorm", "_sums"}


def test_means_of_no_values_are_left_out_without_a_sync():
    """With several processes numbers of values are tensors: (2 · 3 + 6 · 1) / 4. A mean of no values is NaN."""
    meter = AverageMeter(round=3)
    with Waits() as waits:
        for total, count in ((6.0, 3.0), (0.0, 0.0), (6.0, 1.0), (0.0, 0.0)):
            count = torch.tensor(count, dtype=torch.double)
            meter.update(torch.tensor(total) / count, count)
        meter.update(None, count)
    assert not waits.found
    assert meter.smoothed_value == 3 and meter.count == 4
    meter.update(8.0, 4)  # and numbers, as before
    meter.update(9.0, 0)
    assert meter.smoothed_value == 5.5
