"""Selects the best point of a grid of fine-tunings by its validation scores.

    python -m recipes.best_of_grid RUN/validation METRIC OUTPUT VALUES VALUES …     # VALUES: 1e-5,2e-5

A point is named VALUE-VALUE-…; RUN/validation/POINT has its scores.json, RUN/grid/POINT its checkpoint. OUTPUT gets
best.json, {"chosen": name, "metric": name, "validation": {name: score}}, and a link to the checkpoint,
checkpoint_best.pt.
"""

import itertools
import json
import os
import sys
from pathlib import Path

from fairseq_xl.errors import UserError
from fairseq_xl.io.files import write_json
from recipes.entry_point import call

CHECKPOINTS = ("checkpoint_best.pt", "checkpoint_last.pt")  # the first that a point has


def choose(validation: Path, metric: str, output: Path, values: list[str]) -> str:
    """Writes the files of OUTPUT; returns the name of the best point, the first of equal ones.

    Raises `UserError` for a point without the score or without a checkpoint.
    """
    names = ["-".join(point) for point in itertools.product(*(value.split(",") for value in values))]
    scores = {}
    for name in names:
        path = validation / name / "scores.json"
        point_scores = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        if metric not in point_scores:
            raise UserError(f"{path} has no {metric}")
        scores[name] = point_scores[metric]
    best = max(names, key=scores.__getitem__)
    folder = validation.parent / "grid" / best
    checkpoint = next((folder / name for name in CHECKPOINTS if (folder / name).is_file()), None)
    if checkpoint is None:
        raise UserError(f"{folder} has no {' and no '.join(CHECKPOINTS)}")
    output.mkdir(parents=True, exist_ok=True)
    link = output / CHECKPOINTS[0]
    link.unlink(missing_ok=True)
    link.symlink_to(os.path.relpath(checkpoint, output))
    write_json(output / "best.json", {"chosen": best, "metric": metric, "validation": scores})
    return best


def main(validation: str, metric: str, output: str, *values: str) -> None:
    """Prints the chosen setting."""
    sys.stdout.write(choose(Path(validation), metric, Path(output), list(values)) + "\n")


if __name__ == "__main__":
    call(main, __doc__)
