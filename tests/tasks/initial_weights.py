"""Weights of models before and after training."""

import torch
from fairseq import options, tasks

from tests.commands import configuration, one_run


def initial(arguments):
    """State dict of the model that fairseq-train builds for a command line, before any update, and the log."""
    with one_run() as output:
        cfg = configuration(options.get_training_parser(), [*arguments, "--cpu"])
        torch.manual_seed(5)
        built = tasks.setup_task(cfg.task).build_model(cfg.model)
    return built.state_dict(), output.log


def check_all_trained(before, after):
    """Every parameter of the state dict `after` differs from that of `before`."""
    assert before.keys() == after.keys()
    assert [name for name in before if torch.equal(before[name], after[name])] == []
