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


@pytest.fixture
def data(place, tmp_path):
    """A copy of the data-bin that may be damaged."""
    return place.copy_of_data(tmp_path).data


@pytest.mark.parametrize(
    "options, parts",
    [
        (cli(langs="en,xx"), ("--langs: ", "has no text of xx; expected one of en, de, fr")),
        (cli(langs="en,en"), ("--langs en,en: en is named twice",)),
        (cli(langs="de"), ("needs text of two languages", "--langs names de")),
        (cli(langs="en,de", pairs="en-xx"), ("--pairs: ", "no text of en-xx; expected one of en-de, en-fr")),
        (cli(objectives="xdae,backtranslation"), ("--objectives", "unknown backtranslation", "back_translation")),
        (cli(objective_options="back_translation.beam=5"), ("back_translation", "beam", "length")),
        (
            cli(objective_options="xdae.length=32 back_translation.length=900"),
            ("back_translation.length=900", "--max-positions 40"),
        ),
        (cli(init_encoder_from="nowhere.pt"), ("nowhere.pt", "No such file")),
        (cli(init_embeddings_from="nowhere.vec"), ("nowhere.vec", "No such file")),
        (cli(criterion="cross_entropy"), ("xl_unsupervised_translation needs --criterion xl_pretraining",)),
    ],
)
def test_options(place, tmp_path, options, parts):
    refused(place.data, tmp_path / "run", options, *parts)


def test_folder_that_is_missing(tmp_path):
    refused(tmp_path / "nowhere", tmp_path / "run", [], tmp_path / "nowhere", "no such data folder")


@pytest.mark.parametrize("name", ["de/train.bin", "de/train.idx"])
def test_file_that_is_missing(data, tmp_path, name):
    (data / name).unlink()
    refused(data, tmp_path / "run", cli(langs="en,de"), data / "de/train")


def test_language_without_text(data, tmp_path):
    for path in data.glob("de/train.*"):
        path.unlink()
    expected = f"{data} has no text of de; expected one of en, fr"
    refused(data, tmp_path / "run", cli(langs="en,de"), "--langs: ", expected)


def test_text_of_another_dictionary(data, tmp_path):
    (data / "manifest.json").unlink()
    path = data / "dict.txt"
    path.write_text("new 1\n" + path.read_text(encoding="utf-8"), encoding="utf-8")
    refused(data, tmp_path / "run", [], path, "is not the dictionary", "was binarized")


@pytest.mark.parametrize("part", ["encoder", "decoder", "embeddings"])
def test_initial_weights_of_other_languages(place, tmp_path, part):
    path = tmp_path / "pretrained.pt"
    state = torch.load(place.pretraining, weights_only=True)
    state["task_state"]["fairseq_xl"].update(languages=["en", "ru"], dictionary="0" * 64)
    torch.save(state, path)
    sentence = (path, "was trained with another dictionary (languages en, ru)", place.data / "dict.txt")
    refused(place.data, tmp_path / "run", cli(**{f"init_{part}_from": path}), *sentence)


@pytest.mark.parametrize("part", ["encoder", "decoder", "embeddings"])
def test_damaged_initial_weights(place, tmp_path, part):
    path = tmp_path / "pretrained.pt"
    shutil.copy(place.pretraining, path)
    path.write_bytes(path.read_bytes()[:-100])
    sentence = (path, "is not a checkpoint, or it is damaged or cut short")
    refused(place.data, tmp_path / "run", cli(**{f"init_{part}_from": path}), *sentence)


def test_initial_weights_of_another_size(place, tmp_path):
    more = ["--init-encoder-from", place.pretraining, "--heads", 4]
    refused(place.data, tmp_path / "run", more, place.pretraining, "heads")


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
