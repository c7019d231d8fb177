"""Sums of many names on a device: read by name, and restored from checkpoints of this version and of earlier ones."""

import functools
import io
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq.distributed import utils as distributed_utils
from fairseq.logging import metrics
from fairseq.logging.meters import AverageMeter
from fairseq.trainer import Trainer

import fairseq_xl
from fairseq_xl.patches.metrics import kept_if, log_sums
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


@pytest.fixture
def reductions(monkeypatch):
    """Doubles what is reduced, as if another rank had the same; the list has the number of elements of each call."""
    sizes = []

    def doubled(tensor, group):
        sizes.append(tensor.numel())
        tensor.mul_(2)

    monkeypatch.setattr(distributed_utils, "all_reduce", doubled)
    return sizes


def statistics(device):
    """Numbers of the host between tensors of a device."""
    sums = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device=device)
    return {"size": 3, "sums": sums, "time": torch.tensor(0.5), "loss": torch.tensor(1.5, device=device), "ooms": 0}


def test_statistics_of_all_ranks_are_summed_by_one_reduction(reductions):
    found = distributed_utils.all_reduce_dict(statistics("cpu"), torch.device("cpu"), None)
    assert {name: value.tolist() for name, value in found.items()} == {
        "size": 6,
        "sums": [[2, 4, 6], [8, 10, 12]],
        "time": 1,
        "loss": 3,
        "ooms": 0,
    }
    assert list(found) == list(statistics("cpu")) and {value.dtype for value in found.values()} == {torch.double}
    assert reductions == [10]


def test_statistics_of_host_and_device_are_summed_without_a_sync(reductions):
    with Waits() as waits:
        found = distributed_utils.all_reduce_dict(statistics("meta"), torch.device("meta"), None)
    # numbers of the host are copied to the device, for which the host does not wait
    assert reductions == [10] and not [name for name in waits.found if "non_blocking=True" not in name]
    assert {name: (value.device.type, value.shape) for name, value in found.items()} == {
        name: ("meta", torch.as_tensor(value).shape) for name, value in statistics("cpu").items()
    }


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_statistics_are_summed_on_a_gpu_without_a_sync(reductions):
    on_gpu = statistics("cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = distributed_utils.all_reduce_dict(on_gpu, torch.device("cuda"), None)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert (found["size"].item(), found["time"].item(), found["sums"].sum().item()) == (6, 1, 42)


@pytest.mark.parametrize("size, factor", [(2.0, 0.5), (0.0, 2.0)])
def test_the_sample_size_divides_without_a_sync(reductions, size, factor):
    """As in `Trainer.train_step`: the factor for gradients of two ranks, all 0 if the size is."""
    trainer = SimpleNamespace(
        task=type("Task", (), {"logging_outputs_can_be_summed": staticmethod(lambda criterion: True)})(),
        get_criterion=lambda: None,
        device=torch.device("cpu"),
        data_parallel_process_group=None,
    )
    trainer._fast_stat_sync_sum = functools.partial(Trainer._fast_stat_sync_sum, trainer)
    with Waits() as waits:
        logs, (reduced, ooms) = Trainer._aggregate_logging_outputs(trainer, [{"loss": 1.0}], size, 0)
        found = 2 / (reduced or 1.0)
    assert not waits.found
    assert (found.item(), type(found), logs[0]["loss"].item(), ooms.item()) == (factor, torch.Tensor, 2, 0)


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


@pytest.mark.parametrize("kept", [True, False])
def test_what_is_not_kept_is_left_out_without_a_sync(kept):
    """By numbers, tensors and sums; arrays stay. The means of 4 (twice) and of 7 (three times): 29 / 5."""
    lost, names = (7.0, ["a"]) if kept else (float("nan"), ["a"])
    with metrics.aggregate("train"):
        for value, weight, condition in ((4.0, 2, True), (lost, 3, kept)):
            with Waits() as waits, kept_if(torch.tensor(condition)):
                metrics.log_scalar("number", value, weight)
                metrics.log_scalar("tensor", torch.tensor(value), torch.tensor(float(weight)))
                log_sums("_sums", torch.tensor([[weight * value], [weight]], dtype=torch.double), names, means)
                metrics.log_scalar("array", np.array([1.0, 2.0]))
            assert not waits.found
    found = metrics.get_smoothed_values("train")
    assert {name: float(found[name]) for name in ("number", "tensor", "a_mean")} == dict.fromkeys(
        ("number", "tensor", "a_mean"), 29 / 5 if kept else 4.0
    )
    assert found["array"].tolist() == [1, 2]
    metrics.log_scalar("after", 1.0)
    assert metrics.get_smoothed_values("default")["after"] == 1  # the context is left
