"""A grid of fine-tunings, such as GRID "lr=1e-5,2e-5 batch-size=8,16", and the choice of its best point.

    python -m recipes.best_of_grid points GRID
    python -m recipes.best_of_grid choose SAVE_DIR POINT …
    python -m recipes.best_of_grid join SAVE_DIR LANGUAGES
    python -m recipes.best_of_grid join-outputs FOLDER SPLIT CHECKPOINT …

`points` prints a line for each combination of values: its name, FLAG=VALUE,…, and its flags, if fairseq-train can read
all values. `choose` reads the best
validation values in the checkpoints of SAVE_DIR/grid/POINT: SAVE_DIR gets links to the checkpoint_best.pt of the best
point and to the checkpoint_best_LANGUAGE.pt of the best point for each language, and best.json, {"best": {"average"
or language: point}, "at": {"average" or language: {"epoch", "updates"} of its checkpoint}, "validation": {point:
{"average" or language: value}}}. `join` copies the predictions of
SAVE_DIR/by-language/LANGUAGE, each of another model, to SAVE_DIR/predictions. `join-outputs` names all checkpoints in
the notes of FOLDER/LANGUAGE/generate-SPLIT.txt, so that they are scored together.
"""

import itertools
import os
import re
import sys
from dataclasses import fields
from pathlib import Path

from fairseq_xl import register
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.prediction_folders import (
    Origin,
    check_predictions,
    read_note,
    write_origin,
    write_predictions,
)
from fairseq_xl.io.checkpoints import load_plain
from fairseq_xl.io.files import write_json
from fairseq_xl.io.options import option_name
from recipes.entry_point import call

AVERAGE = "average"
CONFIG = str(Path(__file__).with_name("xlm") / "config/finetune.yaml")  # of every type of fine-tuning
CHECKPOINT = re.compile(r"checkpoint_best(?:_(.+))?\.pt")


def points(grid: str) -> None:
    """Prints a line for each point of a grid, NAME --FLAG VALUE …; raises `UserError` for another form."""
    axes = [axis.partition("=") for axis in grid.split()]
    flags, values = [flag for flag, *_ in axes], [text.split(",") for *_, text in axes]
    problems = [f"{flag} is named twice" for flag in flags if flag and flags.count(flag) > 1]
    problems += [f"{axis} has an empty value" for axis, texts in zip(grid.split(), values) if not all(texts)]
    if not axes or not all(flags) or problems:
        form = "expected FLAG=VALUE,VALUE …, such as 'lr=1e-5,2e-5 batch-size=8,16'"
        raise UserError(": ".join([f"--grid {grid!r}", *problems[:1], form]))
    check([word for flag, texts in zip(flags, values) for text in texts for word in (f"--{flag}", text)])
    for point in itertools.product(*values):
        settings = [*zip(flags, point)]
        words = [f"--{flag} {value}" for flag, value in settings]
        sys.stdout.write(" ".join([",".join(map("=".join, settings)), *words]) + "\n")


def check(words: list[str]) -> None:
    """Ends the program as fairseq-train does for a value that it cannot read, and for the name of no option."""
    register()
    from fairseq import options
    from fairseq.models import MODEL_DATACLASS_REGISTRY
    from fairseq.registry import REGISTRIES
    from fairseq.tasks import TASK_DATACLASS_REGISTRY

    parser = options.get_training_parser()
    parser.prog = "finetune.sh --grid"
    _, remaining = options.parse_args_and_arch(parser, ["DATA", "--config", CONFIG, *words], parse_known=True)
    registries = [TASK_DATACLASS_REGISTRY, MODEL_DATACLASS_REGISTRY]
    registries += [registry["dataclass_registry"] for registry in REGISTRIES.values()]
    configs = [config for registry in registries for config in registry.values() if config]
    names = {option_name(field.name) for config in configs for field in fields(config)}  # of other types, optimizers …
    for word in remaining:
        if word.startswith("--") and word not in names:
            parser.error(f"unrecognized arguments: {word}")


def validation_values(folder: Path) -> tuple[dict[str, float], bool]:
    """Returns the best validation values of a training, {"average" or language: value}, and whether higher is better.

    Raises `UserError` for a folder without checkpoint_best.pt.
    """
    values, higher = {}, True
    if not (folder / "checkpoint_best.pt").is_file():
        raise UserError(f"{folder} has no checkpoint_best.pt: a grid is selected by validation")
    for path in sorted(folder.glob("checkpoint_best*.pt")):
        if match := CHECKPOINT.fullmatch(path.name):
            state = load_plain(path, mapped=True)
            extra, higher = state["extra_state"], state["cfg"]["checkpoint"]["maximize_best_checkpoint_metric"]
            values[match[1] or AVERAGE] = extra["best_by_language"][match[1]] if match[1] else extra["best"]
    return values, higher


def position(path: Path) -> dict[str, int]:
    """Returns the epoch and the number of updates after which a checkpoint was saved."""
    state = load_plain(path, mapped=True)
    iterator = state["extra_state"]["train_iterator"]  # at the end of an epoch it names the next one
    epoch = iterator["epoch"] - (not iterator["iterations_in_epoch"])
    return {"epoch": epoch, "updates": state["optimizer_history"][-1]["num_updates"]}


def choose(save_dir: str, *names: str) -> None:
    """Links the best checkpoints of the points `names`, the first of equal ones, and prints their values."""
    folder, validation, higher = Path(save_dir), {}, True
    for name in names:
        validation[name], higher = validation_values(folder / "grid" / name)
    best_points, positions = {}, {}
    for key in validation[names[0]]:
        values = {name: validation[name][key] for name in names}
        best_points[key] = best = (max if higher else min)(names, key=values.__getitem__)
        file_name = "checkpoint_best.pt" if key == AVERAGE else f"checkpoint_best_{key}.pt"
        (folder / file_name).unlink(missing_ok=True)
        (folder / file_name).symlink_to(os.path.join("grid", best, file_name))
        positions[key] = position(folder / file_name)
        sys.stdout.write(f"{key}: {best}, epoch {positions[key]['epoch']} ({values[best]:.2f})\n")
    write_json(folder / "best.json", {"best": best_points, "at": positions, "validation": validation})


def join(save_dir: str, languages: str) -> None:
    """Copies the predictions of SAVE_DIR/by-language/LANGUAGE to SAVE_DIR/predictions."""
    origins: dict[Origin, None] = {}
    texts: dict[str, str] = {}
    for language in languages.split(","):
        folder = Path(save_dir, "by-language", language)
        note = read_note(folder)
        if note is None:
            raise UserError(f"{folder} has no predictions")
        origins[note[0]] = None
        texts |= {name: (folder / name).read_bytes().decode() for name in note[1]}
    write_predictions(Path(save_dir, "predictions"), Origin.from_ensemble(list(origins)), texts)


def join_outputs(folder: str, split: str, *checkpoints: str) -> None:
    """Names all checkpoints in the notes of those outputs of fairseq-generate that one of them wrote."""
    origins = [Origin.from_checkpoint(path, "xl_generation") for path in dict.fromkeys(checkpoints)]
    for path in Path(folder).glob(f"*/generate-{split}.txt"):
        if any(origin.is_same(check_predictions(path)) for origin in origins):
            write_origin(path, Origin.from_ensemble(origins))


if __name__ == "__main__":
    call({"points": points, "choose": choose, "join": join, "join-outputs": join_outputs}, __doc__)
