"""Reads MLDoc: topics of news in eight languages.

    fairseq-xl data read mldoc mldoc corpora/mldoc --langs en,de

MLDoc (Schwenk & Li 2018) is distributed as a list of documents of Reuters' corpora RCV1 and RCV2, which NIST gives
out. RELEASE has the files ``LANGUAGE.{train.SIZE,dev,test}`` that its generate_documents.py makes of both, with lines
``label TAB text``.
"""

import ast
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from fairseq_xl.io.compressed import stored
from fairseq_xl.io.text import text_of_line
from preprocess.commands import run
from preprocess.readers.labeled import Example, Part, argument_parser, build, inside, read_rows, selected_languages
from preprocess.readers.problems import Problems

LANGUAGES = {
    "de": "german",
    "en": "english",
    "es": "spanish",
    "fr": "french",
    "it": "italian",
    "ja": "japanese",
    "ru": "russian",
    "zh": "chinese",
}
LABELS = {label: label for label in ("CCAT", "ECAT", "GCAT", "MCAT")}
SIZES = (1000, 2000, 5000, 10000)


def parts(release: Path, languages: list[str], size: int) -> Iterator[Part]:
    """Yields the parts of MLDoc; each language may have a folder for its files."""
    for language in languages:
        name = LANGUAGES[language]
        for split, suffix in (("train", f"train.{size}"), ("valid", "dev"), ("test", "test")):
            read = partial(documents, language=language)
            path = inside(release, name) / f"{name}.{suffix}"
            yield Part(f"{split}.{language}", stored(path), {language: f"{split}.{language}.tsv"}, read)


def documents(path: Path, problems: Problems, language: str) -> Iterator[Example]:
    """Yields the documents of a file."""
    for line_number, fields in read_rows(path, problems):
        if len(fields) != 2:
            problems.add(f"{path}, line {line_number}: expected a label and a text, found {len(fields)} fields")
            continue
        label, text = problems.label(path, line_number, "label", fields[0], LABELS), plain(fields[1])
        if not text:
            problems.add(f"{path}, line {line_number}: an empty text")
        elif label:
            yield Example(language, label, (text,))


def plain(text: str) -> str:
    """Returns the text of a document, which generate_documents.py writes as b'…' on Python 3."""
    if text[:2] not in ("b'", 'b"') or text[-1] != text[1]:
        return text
    try:
        return text_of_line(ast.literal_eval(text).decode("utf-8"))
    except (SyntaxError, ValueError):  # a text that begins with b' and is no literal
        return text


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    parser = argument_parser("mldoc", "folder with the files of generate_documents.py", list(LANGUAGES))
    parser.add_argument(
        "--size", type=int, choices=SIZES, default=SIZES[0], help="documents of a training file (default: %(default)s)"
    )
    options = parser.parse_args(arguments)

    def work() -> None:
        languages = selected_languages(options.langs, list(LANGUAGES))
        header = {"corpus": ["MLDoc"], "languages": languages, "size": options.size}
        build(options.destination, options.release, list(parts(options.release, languages, options.size)), header)

    return run(work, options.destination, "mldoc: ")
