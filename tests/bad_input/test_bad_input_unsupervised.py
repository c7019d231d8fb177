"""Mistakes in the text, the options and the initial weights of unsupervised translation: one sentence, no training."""

import shutil

import pytest
import torch

from tests.bad_input.every_command import fails, line_of
from tests.command_line import cli
from tests.commands import run_train, unsupervised


def refused(data, folder, more, *sentence):
    """Training with the options `more` fails with the parts of `sentence`, and writes no checkpoint."""
    line = unsupervised(data, folder, "--max-update", 1, "--disable-validation", *more)
    fails(lambda: run_train(line), *sentence)
    assert not list(folder.rglob("*.pt"))


@pytest.mark.parametrize(
    "options, parts",
    [
        (cli(langs="de"), ("needs text of two languages", "--langs names de")),
        (cli(objectives="xdae,backtranslation"), ("--objectives", "unknown backtranslation", "back_translation")),
        (cli(objective_options="back_translation.beam=5"), ("back_translation", "beam", "length")),
        (
            cli(objective_options="xdae.length=32 back_translation.length=900"),
            ("back_translation.length=900", "--max-positions 40"),
        ),
        (cli(criterion="cross_entropy"), ("xl_unsupervised_translation needs --criterion xl_pretraining",)),
    ],
)
def test_options(place, tmp_path, options, parts):
    refused(place.data, tmp_path / "run", options, *parts)


def test_initial_weights_of_other_languages(place, tmp_path):
    path = tmp_path / "pretrained.pt"
    state = torch.load(place.pretraining, weights_only=True)
    state["task_state"]["fairseq_xl"].update(languages=["en", "ru"], dictionary="0" * 64)
    torch.save(state, path)
    sentence = (path, "was trained with another dictionary (languages en, ru)", place.data / "dict.txt")
    refused(place.data, tmp_path / "run", cli(init_decoder_from=path), *sentence)


def test_checkpoint_of_another_task(place, tmp_path):
    """A run that would go on from a pre-training in its folder."""
    last = tmp_path / "run/checkpoint_last.pt"
    last.parent.mkdir()
    shutil.copy(place.pretraining, last)
    line = unsupervised(place.data, last.parent, "--max-update", 2, "--disable-validation")
    fails(lambda: run_train(line), last)
    assert last.read_bytes() == place.pretraining.read_bytes()


def test_pretraining_does_not_go_on_from_unsupervised_translation(place, tmp_path):
    run_train(unsupervised(place.data, tmp_path / "run", "--max-update", 1, "--disable-validation"))
    line = line_of("pretraining", place, tmp_path / "run", "--max-update", 2, "--disable-validation")
    fails(lambda: run_train(line), tmp_path / "run/checkpoint_last.pt")
