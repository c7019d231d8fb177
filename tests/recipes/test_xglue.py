"""The recipe of Unicoder for XGLUE's models for generation: its values, and pre-training through its script."""

import os

import pytest

from fairseq_xl.checkpoints.stacks import copy_stack
from tests.commands import load
from tests.recipes.configurations import PRETRAINING, RECIPES, build, configuration, objectives_of
from tests.recipes.scripts import run

CONFIG = RECIPES / "xglue/config"
SIZES = {"paper": [CONFIG / "xdae.yaml"], "toy": [CONFIG / "xdae.yaml", CONFIG / "xdae-toy.yaml"]}


def xdae_of(size, dictionary):
    cfg = configuration(SIZES[size])
    return cfg, objectives_of(cfg, dictionary)["xdae"]


@pytest.mark.parametrize("size", SIZES)
def test_languages_are_mixed_and_spans_are_masked(size, dictionary):
    cfg, objective = xdae_of(size, dictionary)
    assert objective.cfg.mixed and objective.cfg.alpha == 0.3  # G2
    assert objective.cfg.noise == {"paper": "infill", "toy": "shuffle+infill"}[size]  # G4: the toy's is ours
    assert objective.input_length.positions <= cfg.model.max_positions
    assert cfg.optimization.max_update == cfg.lr_scheduler.total_num_update > cfg.lr_scheduler.warmup_updates > 0


@pytest.mark.parametrize("size", SIZES)
def test_xlm_of_its_size_fills_encoder_and_decoder(size, dictionary):
    pretrained_files = {"paper": PRETRAINING["paper"], "toy": PRETRAINING["toy"]}[size]
    pretrained = build(configuration(pretrained_files), dictionary).state_dict()
    recipient = build(configuration(SIZES[size]), dictionary).state_dict()
    for stack in ("encoder", "decoder"):
        _, new = copy_stack(recipient, pretrained, stack, size, layers="first" if stack == "decoder" else "all")
        assert all("cross_attention" in name for name in new) and bool(new) == (stack == "decoder")


def test_pretraining_through_the_script_goes_on(warm, data_bin, tmp_path):
    def pretrain(folder, init, *more):
        size = "--encoder-layers 1 --decoder-layers 1 --embed-dim 16 --ffn-dim 32 --heads 2 --max-positions 128 --cpu"
        configs = [f"--config={path}" for path in SIZES["toy"]]
        command = ["bash", "recipes/xglue/pretrain.sh", data_bin, tmp_path / folder, init, *configs]
        done = run(*map(str, command), *size.split(), "--warmup-updates", "1", "--no-epoch-checkpoints", *more)
        assert done.returncode == 0, done.stderr
        return done.stdout

    pretrain("first", "random", "--max-update", "1")
    told = pretrain("first", "random", "--max-update", "2")
    assert "Loaded checkpoint" in told and "@ 1 updates" in told
    path = tmp_path / "first/checkpoint_last.pt"
    told = pretrain("second", path, "--max-update", "1", "--lr", "0")
    assert f"decoder from {path}" in told and os.path.exists(tmp_path / "second/checkpoint_last.pt")
    assert load(path).keys() == load(tmp_path / "second/checkpoint_last.pt").keys()
