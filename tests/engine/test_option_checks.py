"""Checks of the options of a training."""

from types import SimpleNamespace

import pytest
from fairseq.dataclass.configs import CommonConfig
from omegaconf import OmegaConf

from fairseq_xl.engine import option_checks
from fairseq_xl.errors import UserError
from fairseq_xl.io.options import number_of_updates


def test_a_precision_of_the_command_line_replaces_that_of_the_file(monkeypatch):
    job = SimpleNamespace(overrides=SimpleNamespace(task=["common.bf16=true"]), job=SimpleNamespace(config_name="mine"))
    monkeypatch.setattr(option_checks, "HydraConfig", SimpleNamespace(initialized=lambda: True, get=lambda: job))
    common = CommonConfig(memory_efficient_fp16=True, bf16=True)
    found = OmegaConf.structured(common)
    option_checks._choose_precision(found)
    assert (found.fp16, found.memory_efficient_fp16, found.bf16) == (False, False, True)
    job.overrides.task = []
    with pytest.raises(UserError, match="mine: --fp16, --bf16 and --amp"):
        option_checks._choose_precision(OmegaConf.structured(common))


@pytest.mark.parametrize("value", ["many", "0", -1, "2.5", ""])
def test_what_is_no_number_of_updates_is_refused(value):
    with pytest.raises(UserError, match=f"--updates-per-epoch {value}: auto, or a whole number"):
        number_of_updates(value)
    assert [number_of_updates(each) for each in ("auto", "3", 3)] == ["auto", 3, 3]


def run_of(batches, processes=1, frequency=1, skip=False, **task):
    optimization = {"update_freq": [frequency], "skip_remainder_batch": skip}
    task |= {"batches_per_update": batches, "update_freq": [frequency]}
    distributed = {"distributed_world_size": processes}
    return OmegaConf.create({"task": task, "optimization": optimization, "distributed_training": distributed})


@pytest.mark.parametrize(
    "run, message",
    [
        (run_of(64, 6), "64 cannot be divided by 6 processes: start 4 or 8"),
        (run_of(8, 100), "8 cannot be divided by 100 processes: start 8"),
        (run_of(40, 10, schedule="cycle", objectives="mlm,tlm,clm,xdae,nsp"), "40 .* 10 processes: start 8"),
        (run_of(8, frequency=2), "8: leave out --update-freq"),
        (run_of(8, skip=True), "8: leave out --skip-remainder-batch"),
        (run_of(0), "0: 1 or more is needed"),
    ],
)
def test_an_update_that_cannot_be_divided_is_refused(run, message):
    with pytest.raises(UserError, match=f"--batches-per-update {message}"):
        option_checks.split_update(run)


def test_an_update_is_divided_by_the_number_of_processes():
    for batches, expected in ((64, [8]), (None, [1])):
        run = run_of(batches, 8)
        option_checks.split_update(run)
        assert run.task.update_freq == run.optimization.update_freq == expected
