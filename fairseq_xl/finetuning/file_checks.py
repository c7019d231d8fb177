"""Warns before training of task files that look wrong: of classes, languages, and test files without labels."""

import logging
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fairseq_xl.errors import LISTED, UserError
from fairseq_xl.evaluation.languages import Languages, LineSample, described, other_languages
from fairseq_xl.finetuning.base import TaskType

EXPECTED = 10.0  # occurrences by another file's share, from which on a class that is missing or rare is reported
RARE = 0.1  # share of the expected occurrences below which a class is rare
FREQUENT = 0.05  # share of the training labels from which on a class is looked for in each file

logger = logging.getLogger(__name__)


@dataclass
class TaskFile:
    """Counts of the examples of a task file."""

    split: str
    language: str
    path: str
    subtask: str = ""  # files of one subtask are compared
    classes: Counter[str] = field(default_factory=Counter)
    first: dict[str, int] = field(default_factory=dict)  # class -> line of its first occurrence
    labeled: int = 0  # examples
    unlabeled: str = ""  # place of the first example without a label
    languages: Languages = field(default_factory=dict)  # of a sample of its texts, numbers of examples for lines
    places: dict[str, str] = field(default_factory=dict)  # language -> place of its first text

    @property
    def number(self) -> int:
        """Number of labels."""
        return self.classes.total()

    @property
    def trains(self) -> bool:
        """Whether the file is of the split `train`."""
        return self.split == "train"


def count(split: str, path: Any, examples: Sequence[Any], task_type: TaskType, subtask: str = "") -> TaskFile:
    """Counts the examples of a file.

    Raises `UserError` for training text without a label, and for a file in which only some examples have labels.
    """
    file, texts = TaskFile(split, examples[0].language, str(path), subtask), LineSample()
    for example in examples:
        if task_type.is_labeled(example):
            file.labeled += 1
            for name, line in task_type.classes(example):
                file.classes[name] += 1
                file.first.setdefault(name, line)
        else:
            file.unlabeled = file.unlabeled or example.place
    if file.unlabeled and file.trains:
        raise UserError(f"{file.unlabeled}: training text without a label")
    if file.unlabeled and file.labeled and not task_type.partly_labeled:
        raise UserError(f"{file.unlabeled}: no label, but {file.labeled} examples of this file have one")
    texts.add([task_type.text(example).encode() for example in examples])
    file.languages = texts.languages()
    file.places = {language: examples[number - 1].place for language, (_, number) in file.languages.items()}
    return file


def warn_of_files(files: Sequence[TaskFile]) -> None:
    """Logs a warning for each file of `count` that looks wrong; the training files are among them."""
    unlabeled = [file.path for file in files if not file.labeled]
    if unlabeled:
        logger.warning("without labels, to be predicted and not scored: %s", ", ".join(unlabeled))
    others = other_languages({file.path: (file.language, file.languages) for file in files})
    for file in files:
        if file.path in others:
            language, _ = others[file.path]
            found = described(file.languages, language)
            logger.warning("%s instead of %s: %s", found, file.language, file.places[language])
    for subtask in dict.fromkeys(file.subtask for file in files):
        for path, sentences in wrong_classes([file for file in files if file.subtask == subtask]).items():
            more = f"; and {len(sentences) - LISTED} more" if len(sentences) > LISTED else ""
            logger.warning("%s: classes that look wrong: %s%s", path, "; ".join(sentences[:LISTED]), more)


def wrong_classes(files: Sequence[TaskFile]) -> dict[str, list[str]]:
    """{file: a sentence for each class that looks wrong}, of the files of a task or subtask.

    Classes of training files that are spelled twice or occur once; that all other files, or the training files of other
    languages, lack or hardly have; then frequent ones that a validation or test file lacks. A class is named once.
    """
    files = [file for file in files if file.classes]
    training = sum((file.classes for file in files if file.trains), Counter())
    spelled: dict[str, str] = {}  # plain form -> its most frequent spelling
    for name, _ in training.most_common():
        spelled.setdefault(plain(name), name)
    found: dict[str, list[str]] = {}
    named = set()

    def add(file: TaskFile, name: str, reason: str) -> None:
        counted = f"{file.classes[name]} of {file.number}, first line {file.first[name]}"
        found.setdefault(file.path, []).append(f"{name!r} ({counted}): {reason}")
        named.add(plain(name))

    rows = [(file, name) for file in files if file.trains for name in sorted(file.classes)]
    for file, name in rows:
        if spelled[plain(name)] != name:
            add(file, name, f"differs from {spelled[plain(name)]!r} in case, blanks or invisible characters only")
        elif file.classes[name] == 1 and file.first[name] == 1:
            add(file, name, "is it a header line?")
        elif training[name] == 1:
            add(file, name, "occurs once in the training files")
    for file, name in rows:
        if plain(name) not in named and (reason := _rare_elsewhere(file, name, files)):
            add(file, name, reason)
    for file in files:
        for name, number in sorted(training.items()) if not file.trains else ():
            share = number / training.total()
            lacks = not file.classes[name] and share >= FREQUENT and share * file.number >= EXPECTED
            if lacks and plain(name) not in named:
                found.setdefault(file.path, []).append(
                    f"{name!r} (0 of {file.number}): {100 * share:.0f} % of the labels in the training files"
                )
    return found


def _rare_elsewhere(file: TaskFile, name: str, files: Sequence[TaskFile]) -> str:
    """Says whether a class is rare or missing in all other files, or in the training files of other languages."""
    share = file.classes[name] / file.number
    groups = {
        "the other files": [one for one in files if one is not file],
        "the training files of other languages": [one for one in files if one.trains and one.language != file.language],
    }
    for group, others in groups.items():
        number, total = sum(one.classes[name] for one in others), sum(one.number for one in others)
        if share * total >= EXPECTED and number < RARE * share * total:
            return f"{number} of {total} labels in {group}"
    return ""


def plain(name: str) -> str:
    """A class in lower case, without blanks and invisible characters."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    return "".join(each for each in folded if not each.isspace() and unicodedata.category(each) not in ("Cf", "Cc"))
