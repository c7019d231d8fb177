"""An experiment file, and runs of it."""

from pathlib import Path

import pytest

from recipes import experiment
from recipes.experiment_file import Experiment

ROOT = Path(__file__).resolve().parents[2]


STEPS = """
values:
  text: data.txt
  size: 8
  seeds: [1, 2]
  languages: "en,{others}"
  others: [de, fr]
  models:
    random: {start: ""}
    mlm: {start: "--init {output}/mlm/weights", objectives: "mlm"}
steps:
  pretrain:
    for: {model: models}
    where: model.objectives
    folder: "{model}"
    only if needed: true
    run: cp {text} {folder}/weights
  classify:
    for: {model: models, seed: seeds}
    folder: "{model}/nc-{seed}"
    stdout: scores
    run: echo {model.start:words} {updates:words} --seed {seed} --langs {languages} {others:each}=x:{others:each}
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "data.txt").write_text("weights\n")
    (tmp_path / "experiment.yaml").write_text(STEPS)
    return tmp_path / "experiment.yaml"


def run(file, *arguments, output="out"):
    """Runs the driver on `file`, with its text beside it."""
    words = [str(file), "--output", str(file.parent / output), *arguments]
    if "text:" in file.read_text():
        words += [f"text={file.parent}/data.txt"]
    experiment.main(words)


def steps(file, *overrides, updates=None):
    made = Experiment(file, overrides, file.parent / "out", updates)
    return {step.name: [" ".join(command) for command in step.commands] for step in made.select([])}
