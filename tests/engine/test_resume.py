"""The position in an epoch at which a run goes on that was begun with other settings."""

import pytest
from omegaconf import OmegaConf

from fairseq_xl.engine.resume import _scale_position
from fairseq_xl.errors import UserError


def configuration(updates, processes):
    return OmegaConf.create(
        {
            "task": {"updates_per_epoch": updates},
            "distributed_training": {"distributed_world_size": processes},
            "optimization": {"update_freq": [1]},
        }
    )


def test_batches_of_a_pass_that_no_process_reads_are_named(caplog):
    """3 batches of each of 2 processes are 6, after which 4 processes go on at the 8th."""
    position = {"epoch": 2, "iterations_in_epoch": 3}
    state = {"cfg": configuration("auto", 2), "extra_state": {"train_iterator": position}}
    _scale_position(state, configuration("auto", 4))
    assert position["iterations_in_epoch"] == 2
    assert "2 batches of epoch 2 are skipped, since the number of processes differs" in caplog.text


@pytest.mark.parametrize("before, now", [("auto", 10), (10, "auto")])
def test_a_pass_does_not_go_on_as_a_number_of_updates(before, now):
    position = {"epoch": 2, "iterations_in_epoch": 3}
    state = {"cfg": configuration(before, 1), "extra_state": {"train_iterator": position}}
    sentence = f"epoch 2 was begun with --updates-per-epoch {before}, this run has {now}: restart the epoch"
    with pytest.raises(UserError, match=sentence):
        _scale_position(state, configuration(now, 1))
