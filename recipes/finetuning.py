"""Checks before, and figures after, `finetune.sh` and `multitask.sh`.

python -m recipes.finetuning check TRAIN_LANGS EVAL_LANGS [NAME=]TYPE:TASK_FILES ... CONFIG.yaml ... [--flag value ...]
python -m recipes.finetuning objectives TRAIN_LANGS EVAL_LANGS NAME=TYPE:TASK_FILES ... CONFIG.yaml ... [--flag ...]
python -m recipes.finetuning labeled TYPE:TASK_FILES SPLIT LANGS
python -m recipes.finetuning setting NAME [CONFIG.yaml ...] [--flag value ...]
python -m recipes.finetuning show SCORES.json ...

`check` fails unless the files of every split and language exist. The words from the first CONFIG.yaml on are those of
recipes/launch.py, and --no-scores; the variable PREDICT has flags of fairseq-validate. After the languages of
EVAL_LANGS may follow those of single tasks: "en,de,fr NAME=en,de". `objectives` prints, as YAML, the flags of one run
with an objective for each task. `labeled` prints the languages whose file of a split has labels, joined by commas, and
names the others on stderr. `setting` prints the value of --NAME, or nothing. `show` prints the averages of each file of
scores and its path; with several files a line begins with the file's name.
"""

import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from fairseq_xl import register
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.classification_scores import UNLABELED
from fairseq_xl.evaluation.squad import read_questions
from fairseq_xl.evaluation.task_files import NO_RELEVANCE, file_in, read_examples, read_queries, read_sentences
from fairseq_xl.io.compressed import stored
from fairseq_xl.io.files import read_json
from fairseq_xl.io.flags import OBJECTIVE_OPTIONS, overridden
from fairseq_xl.io.options import option_name
from recipes.entry_point import call


def check(train: str, evaluate: str, *words: str) -> None:
    """Raises `UserError` with all files that are missing.

    Args:
        train, evaluate: languages, separated by commas; after those of `evaluate`, ``NAME=LANGUAGES`` of single tasks.
        words: ``[NAME=]TYPE:TASK_FILES`` of each task, configurations and flags.
    """
    tasks, given = parse(words)
    predicted = values_of(os.environ.get("PREDICT", "").split()).get("--valid-subset", "test")
    validated = [] if "--disable-validation" in given else given.get("--valid-subset", "valid").split(",")
    if "test" not in predicted.split(",") and "--no-scores" not in given:
        raise UserError(f"PREDICT: --valid-subset {predicted} lacks test, which is scored; --no-scores only predicts")
    splits = [given.get("--train-subset", "train"), *validated, *predicted.split(",")]
    missing = []
    for name, evaluated in languages_of(tasks, evaluate).items():
        (kind, folders), valid = tasks[name], validation_languages(name, evaluated, given)
        for split in dict.fromkeys(splits):
            codes = {"train": train, "valid": valid}.get(split, evaluated).split(",")
            missing += missing_files(folders, split, codes, "json" if kind == "question-answering" else "tsv")
    if missing:
        raise UserError(f"TASK_FILES: there is no {', '.join(dict.fromkeys(missing))}")


def objectives(train: str, evaluate: str, *words: str) -> None:
    """Prints the flags of a run of `xl_pretraining` with an objective for each task; the arguments are as of `check`.

    Flags of a task type that its objective has as options, such as --length, become options of each objective;
    --objective-options override them.
    """
    register()
    from fairseq.tasks import TASK_DATACLASS_REGISTRY

    from fairseq_xl.finetuning import TASK_TYPES
    from fairseq_xl.objectives import OBJECTIVES

    tasks, given = parse(words)
    settings, of_tasks, kinds = [], set(), {name: kind.replace("-", "_") for name, (kind, _) in tasks.items()}
    for name, evaluated in languages_of(tasks, evaluate).items():
        objective = OBJECTIVES[kinds[name]]
        names = {field.name for field in fields(TASK_DATACLASS_REGISTRY[f"xl_{kinds[name]}"])}
        flags = {field.name: option_name(field.name) for field in fields(objective.Config) if field.name in names}
        of_tasks.update(flags.values())
        values = {key: given[flag] for key, flag in flags.items() if flag in given}
        values |= {"task_files": tasks[name][1], "train_langs": train, "eval_langs": evaluated}
        values |= {"valid_langs": validation_languages(name, evaluated, given)}
        settings += [f"{name}.{key}={value}" for key, value in values.items()]
    main_metric = f"{TASK_TYPES[kinds[name]].main_metric}_{name}"
    run = {"--updates-per-epoch": "auto"} | {flag: given[flag] for flag in given if flag not in of_tasks}
    run |= {"--task": "xl_pretraining", "--criterion": "xl_pretraining"}
    run["--best-checkpoint-metric"] = "score" if len(tasks) > 1 else main_metric
    run["--objectives"] = ",".join(map("=".join, kinds.items()))
    run[OBJECTIVE_OPTIONS] = " ".join([*settings, run.get(OBJECTIVE_OPTIONS, "")]).strip()
    yaml.safe_dump({flag[2:]: value for flag, value in run.items()}, sys.stdout, sort_keys=False)


def parse(words: tuple[str, ...]) -> tuple[dict[str, list[str]], dict[str, Any]]:
    """Tasks, {name or "": [type, folders]}, and the values of the configurations and flags that follow them."""
    tasks = list(itertools.takewhile(lambda word: not word.endswith((".yaml", ".yml")), words))
    names = [task.partition(":")[0].rpartition("=")[0] for task in tasks]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"SUBTASKS: {twice[0]} is named twice")
    found = {name: task.removeprefix(f"{name}=").split(":", 1) for name, task in zip(names, tasks)}
    return found, options(words[len(tasks) :])


def languages_of(tasks: Iterable[str], evaluate: str) -> dict[str, str]:
    """{task: its languages} of EVAL_LANGS; raises `UserError` for those of a task that is not there."""
    languages, *others = evaluate.split()
    found = dict.fromkeys(tasks, languages)
    for part in others:
        name, _, languages = part.partition("=")
        if name not in found or not languages:
            raise UserError(f"EVAL_LANGS {part!r}: expected NAME=LANGUAGES for one of {', '.join(found)}")
        found[name] = languages
    return found


def validation_languages(name: str, evaluated: str, given: dict[str, Any]) -> str:
    """The languages in which a task is validated: those of --valid-langs, and of one of several, those that it has."""
    valid = given.get("--valid-langs", evaluated)
    found = [code for code in valid.split(",") if not name or code in evaluated.split(",")]
    if not found:
        raise UserError(f"--valid-langs {valid}: {name} has only {evaluated}")
    return ",".join(found)


#: type of a task -> function that reads a file, whether an example has a label
LABELS: dict[str, tuple[Callable[..., list[Any]], Callable[[Any], bool]]] = {
    "classification": (read_examples, lambda example: example.label != UNLABELED),
    "ranking": (read_queries, lambda query: NO_RELEVANCE not in query.relevance),
    "tagging": (read_sentences, lambda sentence: any(tag != UNLABELED for tag in sentence.tags)),
    "question-answering": (read_questions, lambda question: bool(question.answers)),
}


def labeled(task: str, split: str, codes: str) -> None:
    """Prints the languages whose file of a split has labels; ``TYPE:TASK_FILES`` names the task."""
    kind, _, folders = task.partition(":")
    read, has_label = LABELS[kind]
    suffix = "json" if kind == "question-answering" else "tsv"
    paths = {code: file_in(folders.split(os.pathsep), f"{split}.{code}.{suffix}") for code in codes.split(",")}
    found = [code for code, path in paths.items() if any(map(has_label, read(path, code)))]
    if others := [code for code in paths if code not in found]:
        sys.stderr.write(f"{folders}: no labels in {split} of {', '.join(others)}: predicted, and not scored\n")
    sys.stdout.write(",".join(found) + "\n")


def options(words: tuple[str, ...]) -> dict[str, Any]:
    """{flag: value} of configurations and flags; flags override. Raises `UserError` for a wrong file."""
    configs = list(itertools.takewhile(lambda word: word.endswith((".yaml", ".yml")), words))
    return values_of(overridden(configs, words[len(configs) :]))


def values_of(arguments: list[str]) -> dict[str, Any]:
    """{flag: its last value} of arguments; True for a flag without a value."""
    found: dict[str, Any] = {}
    for argument, following in itertools.zip_longest(arguments, arguments[1:], fillvalue="--"):
        flag, equals, value = argument.partition("=")
        if flag.startswith("--"):
            found[flag] = value if equals else following.startswith("--") or following
    return found


def missing_files(folders: str, split: str, codes: list[str], suffix: str) -> Iterator[str]:
    """Yields the path in the first of the folders, joined by ``:``, of each file that none of them has."""
    for code in codes:
        paths = [Path(folder) / f"{split}.{code}.{suffix}" for folder in folders.split(os.pathsep)]
        if not any(stored(path).is_file() for path in paths):
            yield str(paths[0])


def setting(name: str, *words: str) -> None:
    """Prints the value of --`name` in configurations and flags, or nothing."""
    if value := options(words).get(f"--{name}"):
        sys.stdout.write(f"{value}\n")


def show(*files: str) -> None:
    """Prints the averages in files of scores and their paths."""
    for file in files:
        scores = read_json(Path(file))
        name = f"{Path(file).stem} " if len(files) > 1 else ""
        averaged = f"(average of {', '.join(scores['languages'])})" if len(scores["languages"]) > 1 else ""
        for metric, value in scores.items():
            if isinstance(value, float):
                sys.stdout.write(f"{name}{metric} {value:.2f} {averaged}".rstrip() + "\n")
        sys.stdout.write(f"{file}\n")


if __name__ == "__main__":
    call({"check": check, "objectives": objectives, "labeled": labeled, "setting": setting, "show": show}, __doc__)
