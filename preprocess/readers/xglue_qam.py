"""The command: ``python -m preprocess.readers.xglue_qam SOURCE DEST``, questions and passages that may answer them.

QAM of XGLUE in English, French and German. It is the public successor of XQA, which the Unicoder paper fine-tunes on
and which was never distributed. Training text is English only. The test files had no labels at first.
"""

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from fairseq_xl.errors import UserError
from preprocess.readers import command
from preprocess.readers.labeled import Example, Part, inside, one_of, read_release, read_rows

LANGUAGES = ("de", "en", "fr")
LABELS = {"0": "0", "1": "1"}
LABELED, UNLABELED = 3, 2  # fields of a line


def parts(source: Path, languages: list[str]) -> list[Part]:
    """The parts of the release; `source` is its folder QAM or the folder that contains it."""
    folder, found = inside(source, "QAM"), []
    for language in languages:
        read = partial(examples, language=language)
        if language == "en":
            found.append(Part("train en", folder / "xglue.qam.en.train", {"en": "train.en.tsv"}, read))
        files = {language: f"valid.{language}.tsv"}
        found.append(Part(f"valid {language}", folder / f"xglue.qam.{language}.dev", files, read))
        files = {language: f"test.{language}.tsv"}
        read = partial(examples, language=language, may_lack_labels=True)
        found.append(Part(f"test {language}", folder / f"xglue.qam.{language}.test", files, read, optional=True))
    return found


def examples(path: Path, language: str, may_lack_labels: bool = False) -> Iterator[Example]:
    """Yields the examples of a file, which has no header; lines without labels are skipped if `may_lack_labels`."""
    for number, fields in read_rows(path):
        if len(fields) == UNLABELED and may_lack_labels:
            continue
        if len(fields) != LABELED:
            raise UserError(
                f"{path}, line {number}: expected question TAB passage TAB label, found {len(fields)} fields"
            )
        question, passage, label = fields
        yield Example(language, one_of(path, number, "label", label, LABELS), (question, passage))


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    release = "folder of the unpacked release, xglue_full_dataset or QAM in it"
    return read_release("xglue_qam", "XGLUE QAM", release, LANGUAGES, parts, arguments)


if __name__ == "__main__":
    command.end_on_sigterm()
    sys.exit(main())
