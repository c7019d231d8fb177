"""Checks before, and figures after, `finetune.sh` and `multitask.sh`.

python -m recipes.finetuning check TRAIN_LANGS EVAL_LANGS [NAME=]TYPE:TASK_FILES ... CONFIG.yaml ... [--flag value ...]
python -m recipes.finetuning labeled TYPE:TASK_FILES SPLIT LANGS
python -m recipes.finetuning setting NAME [CONFIG.yaml ...] [--flag value ...]
python -m recipes.finetuning show SCORES.json ...

`check` fails unless the files of every split and language exist. The words from the first CONFIG.yaml on are those of
recipes/launch.py, and --no-scores; the variable PREDICT has flags of fairseq-validate. `labeled` prints the languages
whose file of a split has labels, joined by commas, and names the others on stderr. `setting` prints the value of
--NAME, or nothing. `show` prints the averages of each file of scores and its path; with several files a line begins
with the file's name.
"""

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.classification import UNLABELED
from fairseq_xl.evaluation.squad import read_questions
from fairseq_xl.evaluation.task_files import NO_RELEVANCE, file_in, read_examples, read_queries, read_sentences
from fairseq_xl.io.compressed import stored
from fairseq_xl.io.files import read_json
from fairseq_xl.io.flags import flags
from recipes.entry_point import call


def check(train: str, evaluate: str, *words: str) -> None:
    """Raises `UserError` with all files that are missing.

    Args:
        train, evaluate: languages, separated by commas.
        words: ``[NAME=]TYPE:TASK_FILES`` of each task, configurations and flags.
    """
    tasks = list(itertools.takewhile(lambda word: not word.endswith((".yaml", ".yml")), words))
    given = options(words[len(tasks) :])
    predicted = values_of(os.environ.get("PREDICT", "").split()).get("--valid-subset", "test")
    validated = [] if "--disable-validation" in given else given.get("--valid-subset", "valid").split(",")
    if "test" not in predicted.split(",") and "--no-scores" not in given:
        raise UserError(f"PREDICT: --valid-subset {predicted} lacks test, which is scored; --no-scores only predicts")
    splits = [given.get("--train-subset", "train"), *validated, *predicted.split(",")]
    languages = {"train": train, "valid": given.get("--valid-langs", evaluate)}
    own = dict(part.split("=", 1) for part in given.get("--subtask-eval-langs", "").split() if "=" in part)
    missing = []
    for task in tasks:
        kind, _, folders = task.partition(":")
        name, _, kind = kind.rpartition("=")
        for split in dict.fromkeys(splits):
            codes = languages.get(split, evaluate).split(",")
            if name in own and split != "train":
                codes = [code for code in codes if code in own[name].split(",")]
            missing += missing_files(folders, split, codes, "json" if kind == "question-answering" else "tsv")
    if missing:
        raise UserError(f"TASK_FILES: there is no {', '.join(dict.fromkeys(missing))}")


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


def options(words: tuple[str, ...]) -> dict[str, str]:
    """{flag: value} of configurations and flags; flags override. Raises `UserError` for a wrong file."""
    configs = list(itertools.takewhile(lambda word: word.endswith((".yaml", ".yml")), words))
    return values_of([*flags(configs), *words[len(configs) :]])


def values_of(arguments: list[str]) -> dict[str, str]:
    """{flag: its last value} of arguments; of a flag without a value, the next argument."""
    found = {}
    for argument, following in itertools.zip_longest(arguments, arguments[1:], fillvalue=""):
        flag, equals, value = argument.partition("=")
        if flag.startswith("--"):
            found[flag] = value if equals else following
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
    call({"check": check, "labeled": labeled, "setting": setting, "show": show}, __doc__)
