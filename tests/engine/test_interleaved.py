"""Two trainings in one process do not touch each other."""

import pytest
import torch
from fairseq import options

from fairseq_xl.engine.main import Run
from fairseq_xl.engine.metrics import EPOCH
from tests.command_line import cli
from tests.commands import CPU, configuration, one_run, pretraining, translation

OF_TIME = {"wps", "ups", "wall"}
UPDATES = 4


def begin(line):
    """A training and the batches of its first epoch."""
    run = Run(configuration(options.get_training_parser(), [*line, *CPU]))
    batches = run.batches_by_update()
    run.trainer.begin_epoch(1)
    return run.trainer, batches


def result(trainer):
    """Parameters, state of the optimizer, and statistics."""
    statistics = {name: value for name, value in trainer.metrics.values(EPOCH).items() if name not in OF_TIME}
    state = trainer.state_dict()
    return [state["model"], state["last_optimizer_state"], state["optimizer_history"], statistics]


def assert_equal(one, other):
    """Bit for bit."""
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            assert_equal(one[name], other[name])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for left, right in zip(one, other):
            assert_equal(left, right)
    else:
        assert one == other


@pytest.mark.parametrize("precision", [[], ["--fp16", "--fp16-init-scale", 4]], ids=["fp32", "fp16"])
def test_interleaved_trainings_are_equal_to_each_alone(data_bin, tmp_path, precision):
    """With dropout, two objectives, two micro-steps an update, and another task with another seed."""
    more = cli(disable_validation=True, optimizer="xl_adam", clip_norm=1.0, dropout=0.2, no_save=True)
    lines = [
        [*pretraining(data_bin, tmp_path / "a", *more, "--update-freq", 2, "--updates-per-epoch", UPDATES), *precision],
        translation(data_bin, tmp_path / "b", *more, *cli(s="en", t="de"), "--seed", 5, "--max-tokens", 100),
    ]
    with one_run():
        alone = []
        for line in lines:
            trainer, batches = begin(line)
            for _ in range(UPDATES):
                assert trainer.train_step(next(batches))
            alone.append(result(trainer))
        trainings = [begin(line) for line in lines]
        for _ in range(UPDATES):
            for trainer, batches in trainings:
                assert trainer.train_step(next(batches))
    for (trainer, _), expected in zip(trainings, alone):
        assert_equal(result(trainer), expected)
