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
