"""Checkpoints with the old names of renamed options are read."""

import shutil

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_xl.renamed import RENAMED_OPTIONS
from tests.bad_input.every_command import generate, line_of
from tests.commands import run_train


@pytest.fixture(autouse=True)
def renamed(monkeypatch):
    """As if three options had had other names."""
    for option in ("source-lang", "share-embeddings", "layers"):
        monkeypatch.setitem(RENAMED_OPTIONS, f"--old-{option}", f"--{option}")


def test_checkpoints_with_old_names_are_read(place, tmp_path):
    """For evaluation, and to resume; neither reports changed settings."""
    state = torch.load(place.translation, weights_only=True)
    for section, key in (("task", "source_lang"), ("model", "share_embeddings")):
        state["cfg"][section][f"old_{key}"] = state["cfg"][section].pop(key)
    torch.save(state, tmp_path / "checkpoint_last.pt")
    expected = generate(place, tmp_path).lines("H")
    assert generate(place.but(translation=tmp_path / "checkpoint_last.pt"), tmp_path).lines("H") == expected
    _, cfg, _ = checkpoint_utils.load_model_ensemble_and_task([str(tmp_path / "checkpoint_last.pt")])
    assert cfg.task.source_lang == "en" and "old_source_lang" not in cfg.task and "share_embeddings" in cfg.model
    more = ["--max-update", 2, "--disable-validation"]
    again = run_train(line_of("translation", place, tmp_path, *more))
    (tmp_path / "new").mkdir()
    shutil.copy(place.translation, tmp_path / "new/checkpoint_last.pt")
    assert again.updates == run_train(line_of("translation", place, tmp_path / "new", *more)).updates
    assert list(again.updates) == [2] and "other settings" not in again.log
