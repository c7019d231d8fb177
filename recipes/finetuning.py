"""Checks and settings of `finetune.sh` and `multitask.sh`.

python -m recipes.finetuning check TRAIN_LANGS EVAL_LANGS [NAME=]TYPE:TASK_FILES ... [--config FILE ...] [--flag ...]
python -m recipes.finetuning objectives TRAIN_LANGS EVAL_LANGS NAME=TYPE:TASK_FILES ... [--config FILE ...] [--flag ...]
python -m recipes.finetuning labeled TYPE:TASK_FILES SPLIT LANGS
python -m recipes.finetuning scored EVAL_LANGS NAME=TYPE:TASK_FILES ...
python -m recipes.finetuning setting NAME[=DEFAULT] [--config FILE ...] [--flag value ...]

`check` fails unless the files of every split and language exist. The flags are those of fairseq-train,
--launch, --no-scores and --predict, whose value has flags of fairseq-validate. EVAL_LANGS has the languages,
and may have those of single tasks: "en,de,fr NAME=en,de". `objectives` prints, as YAML, the flags of a run with an
objective for each task. `labeled` prints the languages with labels in their file of a split, joined by commas, and the
others on stderr. `scored` prints a line for each task: NAME, TYPE, TASK_FILES, its languages, and those with labels in
the test files, separated by tabs. `setting` prints the value of --NAME, or else DEFAULT or nothing.
"""

import itertools
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from fairseq_xl import register
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.task_files import file_in
from fairseq_xl.io.compressed import stored
from fairseq_xl.io.flags import OBJECTIVE_OPTIONS, expanded
from fairseq_xl.io.options import option_name
from recipes.entry_point import call

#: endings of the files of the types of `finetune.sh`, so that files are checked before torch is imported
SUFFIXES = dict.fromkeys(("classification", "ranking", "tagging"), "tsv") | {"question-answering": "json"}


def check(train: str, evaluate: str, *words: str) -> None:
    """Raises `UserError` with all files that are missing.

    Args:
        train, evaluate: languages, separated by commas; after those of `evaluate`, ``NAME=LANGUAGES`` of single tasks.
        words: ``[NAME=]TYPE:TASK_FILES`` of each task, configurations and flags.
    """
    tasks, flags = parse(words)
    predicted = values_of(str(flags.get("--predict", "")).split()).get("--valid-subset", "test")
    validated = [] if "--disable-validation" in flags else flags.get("--valid-subset", "valid").split(",")
    if "test" not in predicted.split(",") and "--no-scores" not in flags:
        raise UserError(f"--predict: --valid-subset {predicted} lacks test, which is scored; --no-scores only predicts")
    splits = [flags.get("--train-subset", "train"), *validated, *predicted.split(",")]
    missing = []
    for name, evaluated in languages_of(tasks, evaluate).items():
        (kind, folders), valid = tasks[name], validation_languages(name, evaluated, flags)
        for split in dict.fromkeys(splits):
            codes = {"train": train, "valid": valid}.get(split, evaluated).split(",")
            missing += missing_files(folders, split, codes, SUFFIXES.get(kind) or file_reader(kind).suffix)
    if missing:
        raise UserError(f"TASK_FILES: there is no {', '.join(dict.fromkeys(missing))}")


def objectives(train: str, evaluate: str, *words: str) -> None:
    """Prints the flags of a run of `xl_pretraining` with an objective for each task; the arguments are as in `check`.

    Flags that are options of an objective, such as --length, become options of each objective; --objective-options
    override them.
    """
    register()
    from fairseq.tasks import TASK_DATACLASS_REGISTRY

    from fairseq_xl.objectives import OBJECTIVES

    tasks, flags = parse(words)
    settings, task_flags, kinds = [], set(), {name: kind.replace("-", "_") for name, (kind, _) in tasks.items()}
    for name, evaluated in languages_of(tasks, evaluate).items():
        objective = OBJECTIVES[kinds[name]]
        names = {field.name for field in fields(TASK_DATACLASS_REGISTRY[f"xl_{kinds[name]}"])}
        field_flags = {field.name: option_name(field.name) for field in fields(objective.Config) if field.name in names}
        task_flags.update(field_flags.values())
        values = {key: flags[flag] for key, flag in field_flags.items() if flag in flags}
        values |= {"task_files": tasks[name][1], "train_langs": train, "eval_langs": evaluated}
        values |= {"valid_langs": validation_languages(name, evaluated, flags)}
        settings += [f"{name}.{key}={value}" for key, value in values.items()]
    main_metric = f"{OBJECTIVES[kinds[name]].main_metric}_{name}"
    remaining = {flag: value for flag, value in flags.items() if flag not in {*task_flags, "--launch", "--predict"}}
    run = {"--updates-per-epoch": "auto"} | remaining
    run |= {"--task": "xl_pretraining", "--criterion": "xl_pretraining"}
    run["--best-checkpoint-metric"] = "score" if len(tasks) > 1 else main_metric
    run["--objectives"] = ",".join(map("=".join, kinds.items()))
    run[OBJECTIVE_OPTIONS] = " ".join([*settings, run.get(OBJECTIVE_OPTIONS, "")]).strip()
    yaml.safe_dump({flag[2:]: value for flag, value in run.items()}, sys.stdout, sort_keys=False)


def file_reader(kind: str) -> Any:
    """The objective of a TYPE with its default options, to read files."""
    register()
    from fairseq_xl.inference.task_types import file_reader

    return file_reader(kind.replace("-", "_"))


def parse(words: tuple[str, ...]) -> tuple[dict[str, list[str]], dict[str, Any]]:
    """Returns tasks, {name or "": [type, folders]}, and the values of the flags after them."""
    tasks = list(itertools.takewhile(lambda word: not word.startswith("--"), words))
    names = [task.partition(":")[0].rpartition("=")[0] for task in tasks]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"SUBTASKS: {twice[0]} is named twice")
    parsed = {name: task.removeprefix(f"{name}=").split(":", 1) for name, task in zip(names, tasks)}
    return parsed, options(words[len(tasks) :])


def languages_of(tasks: Iterable[str], evaluate: str) -> dict[str, str]:
    """Returns {task: languages} of EVAL_LANGS; raises `UserError` for an unknown task."""
    languages, *exceptions = evaluate.split()
    task_languages = dict.fromkeys(tasks, languages)
    for part in exceptions:
        name, _, languages = part.partition("=")
        if name not in task_languages or not languages:
            raise UserError(f"EVAL_LANGS {part!r}: expected NAME=LANGUAGES for one of {', '.join(task_languages)}")
        task_languages[name] = languages
    return task_languages


def validation_languages(name: str, evaluated: str, flags: dict[str, Any]) -> str:
    """Returns the validation languages of a task: those of --valid-langs, of several tasks those that the task has."""
    valid = flags.get("--valid-langs", evaluated)
    codes = [code for code in valid.split(",") if not name or code in evaluated.split(",")]
    if not codes:
        raise UserError(f"--valid-langs {valid}: {name} has only {evaluated}")
    return ",".join(codes)


def labeled(task: str, split: str, codes: str) -> None:
    """Prints the languages with labels in their file of a split; ``TYPE:TASK_FILES`` is the task."""
    kind, _, folders = task.partition(":")
    sys.stdout.write(",".join(labeled_languages(kind, folders, split, codes)) + "\n")


def scored(evaluate: str, *words: str) -> None:
    """Prints name, TYPE, TASK_FILES, languages and languages with labels of each task, separated by tabs."""
    tasks, _ = parse(words)
    for name, codes in languages_of(tasks, evaluate).items():
        kind, folders = tasks[name]
        labels = labeled_languages(kind, folders, "test", codes)
        sys.stdout.write("\t".join([name, kind, folders, codes, ",".join(labels)]) + "\n")


def labeled_languages(kind: str, folders: str, split: str, codes: str) -> list[str]:
    """Returns the languages with labels in their file of a split, and prints the others on stderr."""
    objective = file_reader(kind)
    names = {code: f"{split}.{code}.{objective.suffix}" for code in codes.split(",")}
    paths = {code: file_in(folders.split(os.pathsep), name) for code, name in names.items()}
    labeled_codes = [code for code, path in paths.items() if any(map(objective.is_labeled, objective.read(path, code)))]
    if unlabeled := [code for code in paths if code not in labeled_codes]:
        sys.stderr.write(f"{folders}: no labels in {split} of {', '.join(unlabeled)}: predicted, and not scored\n")
    return labeled_codes


def options(words: tuple[str, ...]) -> dict[str, Any]:
    """Returns {flag: value} of flags, those of --config files included. Raises `UserError` for a wrong file."""
    return values_of(expanded(words))


def values_of(arguments: list[str]) -> dict[str, Any]:
    """Returns {flag: last value} of arguments; True for a flag without a value."""
    values: dict[str, Any] = {}
    for argument, following in itertools.zip_longest(arguments, arguments[1:], fillvalue="--"):
        flag, equals, value = argument.partition("=")
        if flag.startswith("--"):
            values[flag] = value if equals else following.startswith("--") or following
    return values


def missing_files(folders: str, split: str, codes: list[str], suffix: str) -> Iterator[str]:
    """Yields the path, in the first folder, of each file that none of the folders, joined by ``:``, has."""
    for code in codes:
        paths = [Path(folder) / f"{split}.{code}.{suffix}" for folder in folders.split(os.pathsep)]
        if not any(stored(path).is_file() for path in paths):
            yield str(paths[0])


def setting(name: str, *words: str) -> None:
    """Prints the value of --NAME in configurations and flags; otherwise that of `name`, NAME=DEFAULT, or nothing."""
    name, _, default = name.partition("=")
    if value := options(words).get(f"--{name}", default):
        sys.stdout.write(f"{value}\n")


if __name__ == "__main__":
    call({"check": check, "objectives": objectives, "labeled": labeled, "setting": setting, "scored": scored}, __doc__)
