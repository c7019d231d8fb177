"""Statistics: means against fairseq's meters, sums of many names on a device, and both restored from checkpoints."""

import io
import json

import pytest
import torch
from fairseq.logging.meters import AverageMeter

from fairseq_xl.engine import metrics as metrics_module
from fairseq_xl.engine.metrics import EPOCH, INTERVAL, Mean, Metrics
from fairseq_xl.errors import UserError
from tests.waits import Waits


def means(sums):
    return {f"{name}_mean": total / count for name, (total, count) in sums.items()}


def log(metrics, totals, counts, names):
    """Logs sums and counts of names; returns the values."""
    metrics.sums("_sums", torch.tensor([totals, counts], dtype=torch.double), names, means)
    return metrics.values()


def reloaded(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def test_names_have_values_once_they_occur_and_none_after_a_reset():
    metrics = Metrics()
    assert log(metrics, [6.0, 0.0], [2.0, 0.0], ["en", "de"]) == {"en_mean": 3}
    assert log(metrics, [2.0, 5.0], [2.0, 1.0], ["en", "de"]) == {"en_mean": 2, "de_mean": 5}
    metrics.reset("")
    assert log(metrics, [0.0, 7.0], [0.0, 1.0], ["en", "de"]) == {"en_mean": None, "de_mean": 7}


def test_a_resumed_run_goes_on_with_the_statistics_of_its_checkpoint():
    """Its languages may be others, in another order: (5 + 3) / 2; fr has left and keeps its value until the reset."""
    metrics = Metrics()
    log(metrics, [6.0, 5.0, 0.0], [2.0, 1.0, 0.0], ["fr", "de", "en"])
    metrics.average("gnorm", torch.tensor(1.5))
    metrics.latest("lr", 0.1)
    state = reloaded(metrics.state_dict())
    kind, saved = state[""]["_sums"]
    assert (kind, saved["names"], saved["sums"].tolist()) == ("Sums", ["fr", "de"], [[6.0, 2.0], [5.0, 1.0]])
    metrics = Metrics()
    metrics.load_state_dict(state)
    assert metrics.state_dict()[""]["_sums"][1]["names"] == ["fr", "de"]  # saved again before the first update
    metrics.average("gnorm", torch.tensor(2.5))
    values = log(metrics, [4.0, 3.0], [1.0, 1.0], ["en", "de"])
    assert values == {"fr_mean": 3, "de_mean": 4, "en_mean": 4, "gnorm": 2.0, "lr": 0.1}
    metrics.reset("")
    values = log(metrics, [4.0, 0.0], [1.0, 0.0], ["en", "de"])
    assert values == {"fr_mean": None, "de_mean": None, "en_mean": 4, "gnorm": None, "lr": None}


def test_damaged_statistics_are_refused():
    metrics = Metrics(INTERVAL, EPOCH)
    for state in ({INTERVAL: {"loss": ("eval", {})}, EPOCH: {}}, {INTERVAL: {}}, {INTERVAL: [], EPOCH: []}):
        with pytest.raises(UserError, match="the stored statistics are damaged .*--reset-meters"):
            metrics.load_state_dict(json.loads(json.dumps(state)))


def test_means_are_fairseqs():
    mean, expected = Mean(digits=3), AverageMeter(round=3)
    for value, weight in ((1 / 3, 2), (5.0, 0), (torch.tensor(0.7), 3), (None, 1)):
        mean.add(value, weight)
        expected.update(value, weight)
        assert mean.values("loss") == {"loss": expected.smoothed_value}
    assert mean.values("_hidden") == {}


def test_means_of_no_values_are_left_out_without_a_sync():
    """With several processes numbers of values are tensors: (2 · 3 + 6 · 1) / 4. A mean of no values is NaN."""
    mean = Mean(digits=3)
    with Waits() as waits:
        for total, count in ((6.0, 3.0), (0.0, 0.0), (6.0, 1.0), (0.0, 0.0)):
            count = torch.tensor(count, dtype=torch.double)
            mean.add(torch.tensor(total) / count, count)
    assert not waits.found
    assert mean.values("loss") == {"loss": 3} and mean.count == 4


def test_a_rate_leaves_out_the_time_between_two_runs(monkeypatch):
    """3 per 2 seconds before a checkpoint, 5 in 2 seconds after it; the first amount starts the clock."""
    now = [0.0]
    monkeypatch.setattr(metrics_module.time, "perf_counter", lambda: now[0])
    before, after = Metrics(), Metrics()
    before.rate("wps", 100)
    now[0] = 2.0
    before.rate("wps", 3)
    state = reloaded(before.state_dict())
    now[0] = 50.0
    after.load_state_dict(state)
    now[0] = 52.0
    after.rate("wps", 5)
    assert (before.values(), after.values()) == ({"wps": 3 / 52}, {"wps": 2.0})
