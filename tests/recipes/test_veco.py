"""VECO's recipes at nano size, through their own scripts: pre-training in two stages, WMT14 in the official format."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from preprocess.__main__ import main as preprocess
from preprocess.readers.wmt14.__main__ import main as read_wmt14
from preprocess.sample.__main__ import main as write_sample

pytest_plugins = "tests.preprocess.readers.small_wmt14"
ROOT = Path(__file__).resolve().parents[2]
CORPUS = """
languages: [en, de]
vocabulary: {model: unigram, size: 300}
monolingual:
  en: {train: sample/mono/train.en, valid: sample/mono/valid.en}
  de: {train: sample/mono/train.de, valid: sample/mono/valid.de}
bitext:
  en-de: {train: sample/bitext/train.en-de, valid: sample/bitext/valid.en-de}
"""
NANO = "max-update: 2\nsave-interval-updates: 1\nlog-interval: 1\n"
SHAPE = "embed-dim: 16\nffn-dim: 32\nheads: 2\n"


def run(*command):
    environment = os.environ | {"XL_EXTRAS": "tests", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*map(str, command)], cwd=ROOT, env=environment, text=True, capture_output=True, stdin=subprocess.DEVNULL,
        timeout=600,
    )  # fmt: skip


def succeeded(done):
    """What was shown on the way, and printed."""
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr, done.stdout


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """A folder with data-bin, mlm and, from its weights, veco: two updates each; what pretrain.sh showed."""
    folder = tmp_path_factory.mktemp("veco")
    write_sample([str(folder / "sample"), "--documents", "30"])
    (folder / "corpus.yaml").write_text(CORPUS)
    assert preprocess([str(folder / "corpus.yaml"), str(folder / "data-bin")]) == 0
    (folder / "nano.yaml").write_text(NANO + SHAPE)
    (folder / "cross-attention-nano.yaml").write_text('train-only: "*.cross_attention*"\nmax-update: 1\n')
    config = "recipes/veco/config"
    layers = [f"{config}/pretrain.yaml", f"{config}/toy.yaml", f"{config}/mlm-toy.yaml", folder / "nano.yaml"]
    data = folder / "data-bin"
    succeeded(run("python", "recipes/launch.py", "train", data, *layers, "--save-dir", folder / "mlm"))
    init, own = folder / "mlm/checkpoint_last.pt", [f"{config}/toy.yaml", folder / "nano.yaml"]
    shown = succeeded(run("bash", "recipes/veco/pretrain.sh", data, folder / "veco", init, *own))
    return folder, "".join(shown)


def test_two_stages_each_from_the_one_before(pretrained):
    folder, shown = pretrained
    first, second = re.findall(r"weights from (\S+): \d+ tensors, new: (\S+)", shown)
    assert first[0] == f"{folder}/mlm/checkpoint_last.pt" and first[1].startswith("encoder.layers.0.cross_attention")
    assert second == (f"{folder}/veco/cross-attention/checkpoint_last.pt", "none")


def test_wmt14_from_official_files_to_bleu(pretrained, official, tmp_path):
    folder, corpus, output = pretrained[0], tmp_path / "wmt14", tmp_path / "out"
    assert read_wmt14([str(corpus), "--pairs", "en-de"]) == 0
    (tmp_path / "nano.yaml").write_text(NANO + SHAPE + "decoder-layers: 2\nkeep-interval-updates: 2\nmax-tokens: 200\n")
    start = [folder / "data-bin", folder / "veco/checkpoint_last.pt", output, "--corpus", corpus]
    small = ["recipes/veco/config/translate-toy.yaml", tmp_path / "nano.yaml"]
    shown, printed = succeeded(run("bash", "recipes/veco/wmt14.sh", "en-de", *start, *small))
    scores = json.loads(printed.splitlines()[-1])
    assert scores["lines"] == 4 and "tok:13a" in scores["sacrebleu"]["signature"]
    assert "case:lc" in scores["tokenised"]["signature"] and (output / "en-de/average.pt").exists()
    assert len(list((output / "en-de").glob("checkpoint_*_*.pt"))) == 2  # both are averaged
    assert "--init-decoder-layers last" in shown and "--init-decoder-from" in shown
    symbols = [
        [line.split(" ")[0] for line in (place / "data-bin/dict.txt").read_text().splitlines()]
        for place in (folder, output)
    ]
    assert symbols[0] == symbols[1]


@pytest.mark.parametrize("arguments", [["en-cs", "data", "checkpoint", "out"], ["en-de", "data"], []])
def test_wmt14_says_how_it_is_used(arguments):
    done = run("bash", "recipes/veco/wmt14.sh", *arguments)
    assert done.returncode != 0 and "usage: wmt14.sh en-de|en-fr DATA CHECKPOINT OUTPUT_DIR" in done.stderr


@pytest.mark.slow
def test_smoke_ends_with_its_scores(tmp_path):
    _, printed = succeeded(run("bash", "recipes/veco/smoke.sh", "--output", tmp_path, "--updates", 3))
    number = r"\d+\.\d+"
    assert re.fullmatch(rf"veco BLEU={number} random BLEU={number} retrieval={number}", printed.splitlines()[-1])
