"""Warnings before training: task files with suspicious classes, in another language, or without labels."""

import logging
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fairseq_xl.errors import LISTED, UserError
from fairseq_xl.evaluation.language_identification import Languages, LineSample, describe_sample, other_languages

EXPECTED = 10.0  # minimum number of expected occurrences for a warning about a missing or rare class
RARE = 0.1  # a class is rare below this share of the expected occurrences
FREQUENT = 0.05  # a class with at least this share of the training labels should be in every file

logger = logging.getLogger(__name__)


@dataclass
class TaskFile:
    """Counts of the examples of a task file."""

    split: str
    language: str
    path: str
    classes: Counter[str] = field(default_factory=Counter)
    first: dict[str, int] = field(default_factory=dict)  # class -> line of its first occurrence
    labeled: int = 0  # examples
    unlabeled: str = ""  # location of the first example without a label
    languages: Languages = field(default_factory=dict)  # of a sample of its texts
    locations: dict[str, str] = field(default_factory=dict)  # language -> location of its first text

    @property
    def num_labels(self) -> int:
        """Number of labels of its examples."""
        return self.classes.total()

    @property
    def is_training(self) -> bool:
        """Whether the file is of the split `train`."""
        return self.split == "train"


def count(split: str, path: Any, examples: Sequence[Any], objective: Any) -> TaskFile:
    """Counts a file's examples; `UserError` for training text without a label, and for labels in a part of a file."""
    file, texts = TaskFile(split, examples[0].language, str(path)), LineSample()
    for example in examples:
        if objective.is_labeled(example):
            file.labeled += 1
            for label, line in objective.classes(example):
                file.classes[label] += 1
                file.first.setdefault(label, line)
        else:
            file.unlabeled = file.unlabeled or example.location
    if file.unlabeled and file.is_training:
        raise UserError(f"{file.unlabeled}: training text without a label")
    if file.unlabeled and file.labeled and not objective.partly_labeled:
        raise UserError(f"{file.unlabeled}: no label, but {file.labeled} examples of this file have one")
    texts.add([objective.text(example).encode() for example in examples])
    file.languages = texts.languages()
    file.locations = {language: examples[index - 1].location for language, (_, index) in file.languages.items()}
    return file


def warn_of_files(files: Sequence[TaskFile]) -> None:
    """Logs a warning for each suspicious file of an objective; the files include those of training."""
    unlabeled = [file.path for file in files if not file.labeled]
    if unlabeled:
        logger.warning("without labels, to be predicted and not scored: %s", ", ".join(unlabeled))
    detected = other_languages({file.path: (file.language, file.languages) for file in files})
    for file in files:
        if file.path in detected:
            language, _ = detected[file.path]
            sample = describe_sample(file.languages, language)
            logger.warning("%s instead of %s: %s", sample, file.language, file.locations[language])
    for path, sentences in suspicious_classes(files).items():
        rest = f"; and {len(sentences) - LISTED} more" if len(sentences) > LISTED else ""
        logger.warning("%s: classes that look wrong: %s%s", path, "; ".join(sentences[:LISTED]), rest)


def suspicious_classes(files: Sequence[TaskFile]) -> dict[str, list[str]]:
    """{file: a sentence for each suspicious class} of the files of an objective. A class is named once.

    Of training files: classes that are spelled in two ways, that occur once, or that are missing or rare in all other
    files or in the training files of other languages. Of other files: frequent training classes that they lack.
    """
    files = [file for file in files if file.classes]
    training = sum((file.classes for file in files if file.is_training), Counter())
    spellings: dict[str, str] = {}  # plain form -> its most frequent spelling
    for name, _ in training.most_common():
        spellings.setdefault(plain(name), name)
    sentences: dict[str, list[str]] = {}
    reported = set()

    def add(file: TaskFile, name: str, reason: str) -> None:
        counts = f"{file.classes[name]} of {file.num_labels}, first line {file.first[name]}"
        sentences.setdefault(file.path, []).append(f"{name!r} ({counts}): {reason}")
        reported.add(plain(name))

    rows = [(file, name) for file in files if file.is_training for name in sorted(file.classes)]
    for file, name in rows:
        if spellings[plain(name)] != name:
            add(file, name, f"differs from {spellings[plain(name)]!r} in case, blanks or invisible characters only")
        elif file.classes[name] == 1 and file.first[name] == 1:
            add(file, name, "is it a header line?")
        elif training[name] == 1:
            add(file, name, "occurs once in the training files")
    for file, name in rows:
        if plain(name) not in reported and (reason := _rare_elsewhere(file, name, files)):
            add(file, name, reason)
    for file in files:
        for name, occurrences in sorted(training.items()) if not file.is_training else ():
            share = occurrences / training.total()
            lacks = not file.classes[name] and share >= FREQUENT and share * file.num_labels >= EXPECTED
            if lacks and plain(name) not in reported:
                sentences.setdefault(file.path, []).append(
                    f"{name!r} (0 of {file.num_labels}): {100 * share:.0f} % of the labels in the training files"
                )
    return sentences


def _rare_elsewhere(file: TaskFile, name: str, files: Sequence[TaskFile]) -> str:
    """The message that a class is rare in all other files, or in the training files of other languages; or ""."""
    share = file.classes[name] / file.num_labels
    groups = {
        "the other files": [f for f in files if f is not file],
        "the training files of other languages": [f for f in files if f.is_training and f.language != file.language],
    }
    for group, members in groups.items():
        occurrences, total = sum(f.classes[name] for f in members), sum(f.num_labels for f in members)
        if share * total >= EXPECTED and occurrences < RARE * share * total:
            return f"{occurrences} of {total} labels in {group}"
    return ""


def plain(name: str) -> str:
    """A class in lower case, without blanks and invisible characters."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    return "".join(char for char in folded if not char.isspace() and unicodedata.category(char) not in ("Cf", "Cc"))
