"""Gradients have the layout of their parameters: an update of many tensors at once copies those that have not."""

import pytest

from fairseq_xl.optimizers import float32_state
from tests.commands import run_train
from tests.distributed.builders import folders, headed, runs  # noqa: F401

#: a run for each kind of model and of output
RUNS = ["all-cycle", "similarity", "denoising", "future", "next-sentence", "odd", "labelled"]


@pytest.fixture
def copied(monkeypatch):
    """(strides of the gradient, strides of the parameter) where they differ, and the number of all gradients."""
    found, number = [], []
    gradients = float32_state.gradients

    def watched(parameters):
        for parameter in parameters:
            number.append(parameter)
            if parameter.grad.stride() != parameter.stride() or not parameter.grad.is_contiguous():
                found.append((parameter.grad.stride(), parameter.stride()))
        return gradients(parameters)

    monkeypatch.setattr("fairseq_xl.optimizers.adam.gradients", watched)
    return found, number


@pytest.mark.parametrize("name, form", [*((name, "fp32") for name in RUNS), ("next-sentence", "memory-efficient-bf16")])
def test_the_layout_of_gradients_is_that_of_parameters(folders, headed, tmp_path, copied, name, form):
    line, frequency, _ = runs(*folders)[name]
    more = ["--optimizer", "xl_adam", "--disable-validation", *([] if form == "fp32" else [f"--{form}"])]
    run_train([*line, *more, "--save-dir", tmp_path, "--update-freq", frequency, "--max-update", 2])
    assert copied[0] == [] and len(copied[1]) >= 10
