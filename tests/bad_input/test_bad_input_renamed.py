"""Renamed options: the old name is refused with the new one everywhere, except for checkpoints that store it."""

import shutil

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.dataclass.initialize import add_defaults
from omegaconf import OmegaConf

from fairseq_xl.renamed import RENAMED_OPTIONS
from recipes.launch import flags
from tests.bad_input.every_command import fails, generate, line_of
from tests.commands import run_train


@pytest.fixture(autouse=True)
def renamed(monkeypatch):
    """As if three options had had other names."""
    for option in ("source-lang", "share-embeddings", "layers"):
        monkeypatch.setitem(RENAMED_OPTIONS, f"--old-{option}", f"--{option}")


@pytest.mark.parametrize("option", [["--old-layers", "2"], ["--old-layers=2"]])
def test_on_the_command_line(place, tmp_path, option):
    fails(lambda: run_train(line_of("pretraining", place, tmp_path, *option)), "--old-layers is now called --layers")


def test_in_yaml_of_launch(place, tmp_path):
    (tmp_path / "run.yaml").write_text("old-source-lang: en\n", encoding="utf-8")
    line = line_of("translation", place, tmp_path, *flags([tmp_path / "run.yaml"]))
    fails(lambda: run_train(line), "--old-source-lang is now called --source-lang")


@pytest.mark.parametrize("key", ["old_layers", "old-layers"])
def test_in_yaml_of_hydra(key):
    cfg = OmegaConf.create({"model": {"_name": "xl_xlm_tiny", key: 2}})
    fails(lambda: add_defaults(cfg), f"model.{key} is now called model.layers")


def test_in_overrides_of_a_checkpoint(place):
    def read():
        checkpoint_utils.load_model_ensemble([str(place.translation)], {"old_share_embeddings": True})

    fails(read, "--old-share-embeddings is now called --share-embeddings")


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
