"""Checks a classifier and selects a seed for ``monotrans/best-language-module.sh``.

python -m recipes.best_seed check CLASSIFIER BODY      # fails unless CLASSIFIER was fine-tuned from BODY
python -m recipes.best_seed choose FOLDER 1,2,3        # prints the seed whose valid/scores.json is best
"""

import json
import sys
from pathlib import Path

from fairseq_xl import register
from fairseq_xl.checkpoints import language_modules
from fairseq_xl.checkpoints.identity import open_checkpoint
from fairseq_xl.errors import UserError
from recipes.entry_point import call


def check(classifier: str, body: str) -> None:
    """Raises `UserError` unless the first checkpoint is a classifier over the body of the second.

    A body without a language module, such as published weights, is not compared.
    """
    register()
    from fairseq_xl.objectives.labelled import labelled_objectives

    checkpoint = open_checkpoint(classifier, finite=False)
    if checkpoint.identity.get("head") not in labelled_objectives():
        raise UserError(f"CHECKPOINT {classifier} is not a classifier of finetune.sh")
    try:
        expected = language_modules.read(body).body
    except (UserError, OSError):  # step 2 reports a damaged body
        return
    if language_modules.extract(checkpoint).body != expected:
        raise UserError(f"CHECKPOINT {classifier} was not fine-tuned from BODY {body}")


def choose(folder: str, seeds: str) -> None:
    """Prints the first of the seeds with the highest accuracy; raises `UserError` if one has none."""
    scores = {}
    for seed in seeds.split(","):
        path = Path(folder, seed, "valid/scores.json")
        scores[seed] = json.loads(path.read_text(encoding="utf-8")).get("accuracy")
        if scores[seed] is None:
            raise UserError(f"{path} has no average accuracy")
    sys.stdout.write(max(scores, key=scores.__getitem__) + "\n")


if __name__ == "__main__":
    call({"check": check, "choose": choose}, __doc__)
