"""A data-bin, task files and a checkpoint of each task, made once for all tests."""

import pytest

from tests.bad_input.every_command import Place
from tests.builders import write_task
from tests.commands import classification, generation, pretraining, run_train, translation
from tests.tasks.conftest import data_bin  # noqa: F401
from tests.tasks.titles import write_titles


@pytest.fixture(scope="session")
def place(data_bin, tmp_path_factory):
    """A place without errors, which tests only read: `Place.but` makes one with an error."""
    root = tmp_path_factory.mktemp("right")
    files, titles = write_task(root / "files", 1), write_titles(root / "titles")
    lines = {
        "pretraining": pretraining(data_bin, root / "pretraining", objectives="clm,mlm,tlm"),
        "translation": translation(data_bin, root / "translation", "-s", "en", "-t", "de"),
        "classification": classification(data_bin, files, root / "classification"),
        "generation": generation(data_bin, titles, root / "generation"),
    }
    for line in lines.values():
        run_train([*line, "--max-update", 1, "--disable-validation"])
    checkpoints = {task: root / task / "checkpoint_last.pt" for task in lines}
    return Place(data_bin, files, titles, data_bin.parent / "valid.en-de", **checkpoints)
