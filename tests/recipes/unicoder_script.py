"""The scripts of recipes/unicoder with commands that do nothing."""

import json

from recipes import experiment
from tests.recipes.configurations import RECIPES

COMPARISON, FINETUNE = (RECIPES / f"unicoder/{name}.yaml" for name in ("experiment", "finetune"))


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def accuracies(**languages):
    return {"languages": {code: {"accuracy": accuracy} for code, accuracy in languages.items()}}


def drive(file, *values, output, only, updates=2):
    """Runs steps of an experiment in this process."""
    options = ["--output", output, "--only", ",".join(only), "--updates", updates]
    experiment.main([str(argument) for argument in (file, *options, *values)])
