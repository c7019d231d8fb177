"""Reads XTREME's tasks except retrieval (Hu et al. 2020).

    fairseq-xl data read xtreme download corpora/xtreme --tasks panx,udpos

RELEASE is the folder `download` that XTREME's download_data.sh fills. Its test files have no labels: `_` (unlabeled)
is written instead, and answers are left out. Training text is English. If RELEASE has the folder
`xtreme_translations`, training text and SQuAD's dev text translated from English are written to translate_train (Luo et
al. 2020, translate-train-all), and test text translated into English to translate_test (Hu et al. 2020,
translate-test).
"""

import csv
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from fairseq_xl.evaluation.classification_scores import UNLABELED
from fairseq_xl.evaluation.xtreme import LANGUAGES as SCORED
from fairseq_xl.io.compressed import stored
from fairseq_xl.io.text import text_of_line
from preprocess.readers.labeled import Example, Part, copied, read_benchmark, read_rows, tagged_line
from preprocess.readers.problems import Problems, decoded
from preprocess.readers.questions import read_file
from preprocess.readers.tagged import UPOS, Columns, read_tagged, span_tags

SPLITS = (("train", "train"), ("valid", "dev"), ("test", "test"))
RETRIEVAL = ("bucc2018", "tatoeba")  # have nothing to train on
LANGUAGES = {name: tuple(codes.split()) for name, codes in SCORED.items() if name not in RETRIEVAL}
LABELS = {"xnli": {name: name for name in ("contradiction", "entailment", "neutral")}, "pawsx": {"0": "0", "1": "1"}}
CONTRADICTORY = {"contradictory": "contradiction"}  # in XNLI's translations
TAGS = {"udpos": UPOS, "panx": span_tags("LOC ORG PER")}
TEXTS = 2  # of a line of xnli and pawsx
TRANSLATED = "xtreme_translations"  # folder of XTREME's translations in RELEASE
TRANSLATED_TRAINING = {  # files of training text translated from English; mlqa is trained on SQuAD, as xquad
    "xnli": "XNLI/translate-train/en-{}-translated.tsv",
    "pawsx": "PAWSX/translate-train/en-{}-translated.tsv",
    "xquad": "SQuAD/translate-train/squad.translate.train.en-{}.json",
    "mlqa": "SQuAD/translate-train/squad.translate.train.en-{}.json",
    "tydiqa": "TyDiQA-GoldP/translate-train/tydiqa.translate.train.en-{}.json",
}
#: files of validation text translated from English; XQuAD itself has test files only
TRANSLATED_VALIDATION = {"xquad": "SQuAD/translate-dev/squad.translate.dev.en-{}.json"}
TRANSLATED_TESTS = {  # files of test text translated into English
    "xnli": "XNLI/translate-test/test-{}-en-translated.tsv",
    "pawsx": "PAWSX/translate-test/test-{}-en-translated.tsv",
    "xquad": "XQuAD/translate-test/xquad.translate.test.{}-en.json",
    "mlqa": "MLQA/translate-test/mlqa.translate.test.{}-en.json",
    "tydiqa": "TyDiQA-GoldP/translate-test/tydiqa.translate.test.{}-en.json",
}


def file_of(task: str, split: str, language: str) -> str | None:
    """Returns the path of a file in RELEASE; None if the task has no such split in that language."""
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


def parts(task: str, release: Path, languages: list[str], leave_out: bool) -> Iterator[Part]:
    """Yields the parts of a task. udpos has no validation file in some languages; these are left out."""
    for language in languages:
        for split, split_name in SPLITS:
            file = file_of(task, split_name, language)
            if not file or (split == "train" and language != "en"):
                continue
            path, name, training = release / file, f"{task}/{split}.{language}", split == "train"
            if task == "udpos" and split == "valid" and not stored(path).is_file():
                continue
            tsv = {language: f"{name}.tsv"}
            if path.suffix == ".json":
                read = partial(read_file, language=language, training=training)
                yield Part(name, path, {language: f"{name}.json"}, read, line=copied, leave_out=leave_out)
            elif task in LABELS:
                read = partial(pairs, task=task, language=language)
                yield Part(name, path, tsv, read, keeps_empty=True, leave_out=leave_out and training)
            else:
                columns = Columns(1, tag=None) if split == "test" else Columns(2, empty=True)
                read = partial(read_tagged, language=language, columns=columns, tags=TAGS[task])
                yield Part(name, path, tsv, read, line=tagged_line)
        yield from translated(task, release, language, leave_out)


def translated(task: str, release: Path, language: str, leave_out: bool) -> Iterator[Part]:
    """Yields the parts of translated text in RELEASE: training and dev text from English, test text into English."""
    if task not in TRANSLATED_TESTS or language == "en":
        return
    for training, files, target, name in (
        (True, TRANSLATED_TRAINING, language, f"{task}/translate_train/train.{language}"),
        (False, TRANSLATED_VALIDATION, language, f"{task}/translate_train/valid.{language}"),
        (False, TRANSLATED_TESTS, "en", f"{task}/translate_test/{language}/test.en"),
    ):
        path = release / TRANSLATED / files.get(task, "").format(language)
        if task not in files or not path.parent.is_dir():
            continue
        if path.suffix == ".json":
            read = partial(read_file, language=target, training=training)
            yield Part(name, path, {target: f"{name}.json"}, read, line=copied, leave_out=leave_out)
        else:
            read = partial(translated_pairs, task=task, language=target, training=training)
            tsv = {target: f"{name}.tsv"}
            yield Part(name, path, tsv, read, keeps_empty=not training, leave_out=leave_out and training)


def pairs(path: Path, problems: Problems, task: str, language: str) -> Iterator[Example]:
    """Yields the pairs of a file, with two texts and a label on a line; without labels in a test file.

    Python's csv wrote these files: a field with a quote character is quoted, and may contain line ends.
    """
    test, line_numbers = path.name.startswith("test"), []

    def lines() -> Iterator[str]:
        for line_number, text in decoded(path, problems):
            line_numbers.append(line_number)
            yield text

    try:
        for row in csv.reader(lines(), delimiter="\t"):
            first, fields = line_numbers[0], [text_of_line(field) for field in row]
            line_numbers.clear()
            if len(fields) == TEXTS and test:
                yield Example(language, UNLABELED, tuple(fields))
            elif len(fields) == TEXTS + 1:
                if label := problems.label(path, first, "label", fields[-1], LABELS[task]):
                    yield Example(language, label, tuple(fields[:TEXTS]))
            elif row:
                problems.wrong(
                    "wrong columns", f"{path}, line {first}: expected two texts and a label, found {len(fields)} fields"
                )
    except csv.Error as error:
        problems.add(f"{path}, line {line_numbers[0]}: not as Python's csv writes it: {error}")


def translated_pairs(path: Path, problems: Problems, task: str, language: str, training: bool) -> Iterator[Example]:
    """Yields the pairs of a file of translations: two texts, their translations and a label on a line.

    Lines of test files may lack the label.
    """
    valid = LABELS[task] | (CONTRADICTORY if task == "xnli" else {})
    for line_number, fields in read_rows(path, problems, skip_empty=False, same_columns=training):
        texts, labels = tuple(fields[TEXTS : 2 * TEXTS]), fields[2 * TEXTS :]
        if len(fields) != 2 * TEXTS + 1 and (training or len(fields) != 2 * TEXTS):
            problems.wrong(
                "wrong columns",
                f"{path}, line {line_number}: expected two texts, two translations and "
                f"{'a label' if training else 'possibly a label'}, found {len(fields)} fields",
            )
        elif not training and labels in ([], [""]):
            yield Example(language, UNLABELED, texts)
        elif label := problems.label(path, line_number, "label", labels[0], valid):
            yield Example(language, label, texts)


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    release = "folder `download` of XTREME's repository, filled by its download_data.sh"
    return read_benchmark("xtreme", "XTREME", release, LANGUAGES, parts, arguments)
