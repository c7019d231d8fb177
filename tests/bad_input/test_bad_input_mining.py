"""Mining of hard negatives and training on them, with damaged, missing and foreign files."""

import logging
import shutil
import sys

import numpy as np
import pytest

from fairseq_xl.commands import main as fairseq_xl_command, search_negatives
from fairseq_xl.io.files import read_json, write_json
from fairseq_xl.io.fingerprints import fingerprint
from tests.bad_input.builders import one_line
from tests.bad_input.every_command import fails, with_small_files
from tests.commands import dan, pretraining, run_train, trained


@pytest.fixture(scope="module")
def network(place, tmp_path_factory):
    """A deep averaging network after one update."""
    return trained(dan(place.data, tmp_path_factory.mktemp("network"), "--max-update", 1, "--disable-validation"))


@pytest.fixture
def data(place, tmp_path):
    """A copy of the data-bin, to be damaged."""
    return shutil.copytree(place.data, tmp_path / "data-bin")


def other_lines(path):
    """The text of validation in place of that of training."""
    for end in ("idx", "bin"):
        shutil.copy(path.parent / f"valid.en-de.de.{end}", path.with_suffix(f".{end}"))


#: name -> (what is spoilt, how, parts of the sentence)
DATA = {
    "other lines": ("en-de/train.en-de.de.idx", other_lines, ["de.idx is not the file that", "13 lines, expected 90"]),
    "other lines, no manifest": (
        "en-de/train.en-de.de.idx",
        lambda path: (other_lines(path), (path.parent.parent / "manifest.json").unlink()),
        ["lines of 'en' but"],
    ),
    "a folder in its place": (
        "en-de/train.en-de.negatives.npy",
        lambda path: path.mkdir(),
        ["negatives.npy was not written", "not a file"],
    ),
}


@pytest.mark.parametrize("mistake", DATA)
def test_data(network, data, mistake):
    name, spoil, parts = DATA[mistake]
    spoil(data / name)
    fails(
        lambda: search_negatives.main([str(network), str(data), "--pairs", "en-de", "--splits", "train"]), data, *parts
    )


def test_disk_that_gets_full(network, data):
    line = [str(network), str(data), "--pairs", "en-de", "--splits", "train"]
    status, shown = with_small_files(lambda: (logging.disable(), search_negatives.main(line)), 200)
    assert status == 1
    one_line(shown, "fairseq_xl: error: ", "was not written", "the limit on file sizes")
    search_negatives.main(line)  # with room again it goes on
    assert (data / "en-de/train.en-de.negatives.npy").is_file()


@pytest.mark.parametrize("line", [-2, 90])
def test_training_on_lines_that_are_not_there(network, data, tmp_path, line):
    search_negatives.main([str(network), str(data), "--pairs", "en-de"])
    path = data / "en-de/train.en-de.negatives.npy"
    negatives, note = np.load(path), path.with_suffix(".json")
    negatives[0, 0] = line
    np.save(path, negatives)
    options = ["--pairs", "en-de", "--objective-options", "paraphrase.length=32", "--max-update", 1]

    def train():
        run_train(pretraining(data, tmp_path / "model", *options, objectives="paraphrase"))

    fails(train, f"{path} is not the file that `fairseq-xl search negatives` wrote")
    write_json(note, read_json(note) | {"fingerprints": {path.name: fingerprint(path)}})
    fails(train, f"{path} is damaged; `fairseq-xl search negatives CHECKPOINT DATA` writes it again")
    search_negatives.main([str(network), str(data), "--pairs", "en-de"])
    train()


@pytest.mark.parametrize(
    "command, more", [("search negatives", ": run the same command to continue"), ("score bleu", "")]
)
def test_ctrl_c_is_one_sentence(monkeypatch, capsys, command, more):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("sys.argv", ["fairseq-xl", *command.split(), "checkpoint.pt", "data"])
    monkeypatch.setattr("sys.excepthook", sys.excepthook)
    monkeypatch.setattr("argparse.ArgumentParser.parse_args", interrupt)
    with pytest.raises(SystemExit) as stopped:
        fairseq_xl_command()
    assert stopped.value.code == 130 and capsys.readouterr().err == f"Interrupted{more}\n"
