"""The command: ``python -m preprocess.readers.xtreme SOURCE DEST``, XTREME's tasks but for retrieval (Hu et al. 2020).

SOURCE is the folder `download` that XTREME's own download_data.sh fills. Its test files have no labels: theirs are
written as `_`, unlabeled, and answers are left out. Training text is English only.
"""

import csv
import io
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.classification import UNLABELED
from fairseq_xl.evaluation.xtreme import LANGUAGES as SCORED
from fairseq_xl.io.compressed import stored, text_of
from preprocess.readers import command
from preprocess.readers.labeled import (
    Example,
    Part,
    copied,
    one_of,
    questions,
    read_benchmark,
    tagged,
    tagged_line,
)

SPLITS = (("train", "train"), ("valid", "dev"), ("test", "test"))
RETRIEVAL = ("bucc2018", "tatoeba")  # have nothing to train on
LANGUAGES = {name: tuple(codes.split()) for name, codes in SCORED.items() if name not in RETRIEVAL}
LABELS = {
    "xnli": {name: name for name in ("contradiction", "entailment", "neutral")},
    "pawsx": {"0": "0", "1": "1"},
}
TEXTS = 2  # of a line of xnli and pawsx


def file_of(task: str, split: str, language: str) -> str | None:
    """Path of a file in SOURCE; None if the task has no such split in that language."""
    if task in ("xquad", "mlqa") and split == "train":
        return "squad/train-v1.1.json"
    if task == "xquad":
        if split == "dev":
            return "squad/dev-v1.1.json" if language == "en" else None
        return f"xquad/xquad.{language}.json"
    if task == "mlqa":
        return f"mlqa/MLQA_V1/{split}/{split}-context-{language}-question-{language}.json"
    if task == "tydiqa":
        files = {"train": "train/tydiqa.goldp.{}.train.json", "test": "dev/tydiqa.goldp.{}.dev.json"}
        return f"tydiqa/tydiqa-goldp-v1.1-{files[split].format(language)}" if split in files else None
    return f"{task}/{split}-{language}.tsv"


def parts(task: str, source: Path, languages: list[str]) -> Iterator[Part]:
    """The parts of a task. udpos has no validation file in some languages; these are left out."""
    for language in languages:
        for split, theirs in SPLITS:
            file = file_of(task, theirs, language)
            if file is None or (split == "train" and language != "en"):
                continue
            path, name = source / file, f"{task}/{split}.{language}"
            if task == "udpos" and split == "valid" and not stored(path).is_file():
                continue
            if path.suffix == ".json":
                yield Part(name, path, {language: f"{name}.json"}, partial(questions, language=language), line=copied)
            elif task in LABELS:
                read = partial(pairs, task=task, language=language)
                yield Part(name, path, {language: f"{name}.tsv"}, read, keeps_empty=True)
            else:
                read = partial(tagged, language=language, separator="\t", labels=split != "test")
                yield Part(name, path, {language: f"{name}.tsv"}, read, line=tagged_line)


def pairs(path: Path, task: str, language: str) -> Iterator[Example]:
    """Yields the pairs of a file, with two texts and a label on a line; without labels in a test file.

    Python's csv wrote these files: a field with a quote character is quoted.
    """
    with open(path, "rb") as file:
        try:
            lines = io.StringIO(text_of(file).read().decode("utf-8-sig"), newline="")
        except UnicodeDecodeError as error:
            raise UserError(f"{path}: not UTF-8: byte 0x{error.object[error.start]:02x}") from None
    rows = csv.reader(lines, delimiter="\t")
    for row in rows:
        if not row:
            continue
        fields = [" ".join(field.split()) for field in row]
        if len(fields) == TEXTS and path.name.startswith("test"):
            yield Example(language, UNLABELED, tuple(fields))
        elif len(fields) == TEXTS + 1:
            label = one_of(path, rows.line_num, "label", fields[-1], LABELS[task])
            yield Example(language, label, tuple(fields[:TEXTS]))
        else:
            raise UserError(f"{path}, line {rows.line_num}: expected two texts and a label, found {len(fields)} fields")
    if not rows.line_num:
        raise UserError(f"{path}, line 1: the file is empty")


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    release = "folder `download` of XTREME's repository, filled by its download_data.sh"
    return read_benchmark("xtreme", "XTREME", release, LANGUAGES, parts, arguments)


if __name__ == "__main__":
    command.end_on_sigterm()
    sys.exit(main())
