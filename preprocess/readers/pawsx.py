"""Reads PAWS-X: paraphrases in seven languages.

    fairseq-xl data read pawsx x-final.tar.gz corpora/pawsx

PAWS-X has machine translations of PAWS's training pairs and human translations of validation and test pairs. A sentence
without a translation is empty or "NS".
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from preprocess.readers.labeled import Example, Part, inside, read_release, read_table, train_path
from preprocess.readers.problems import Problems

LANGUAGES = ("de", "en", "es", "fr", "ja", "ko", "zh")
LABELS = {"0": "0", "1": "1"}
PLACEHOLDER = "NS"


def parts(release: Path, languages: list[str]) -> list[Part]:
    """Lists the parts of `release`, the folder x-final or the folder that contains it."""
    parts = []
    for language in languages:
        train = "train.tsv" if language == "en" else "translated_train.tsv"
        for name, split, path in (
            (train, "train", train_path(language)),
            ("dev_2k.tsv", "valid", f"valid.{language}.tsv"),
            ("test_2k.tsv", "test", f"test.{language}.tsv"),
        ):
            file = inside(release, "x-final") / language / name
            read = partial(examples, language=language)
            parts.append(Part(f"{split} {language}", file, {language: path}, read, placeholder=PLACEHOLDER))
    return parts


def examples(path: Path, problems: Problems, language: str) -> Iterator[Example]:
    """Yields the examples of a file."""
    for line_number, (first, second, label) in read_table(path, problems, ("sentence1", "sentence2", "label")):
        if known_label := problems.label(path, line_number, "label", label, LABELS):
            yield Example(language, known_label, (first, second))


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    release = "x-final.tar.gz, or the folder x-final that it contains, or the folder that contains x-final"
    return read_release("pawsx", "PAWS-X", release, LANGUAGES, parts, arguments)
