"""Files of labeled text: reads those of published corpora, writes those that fine-tuning reads."""

import argparse
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from fairseq_xl.errors import UserError, names_of
from fairseq_xl.evaluation.classification import UNLABELED
from fairseq_xl.evaluation.squad import read_questions
from fairseq_xl.io.compressed import read_text, stored, text_of
from fairseq_xl.io.files import read_json, sha256_of, write_json
from preprocess.files import replacing
from preprocess.readers import command
from preprocess.stages import Stages, locked

FORMAT = 1  # of outputs; if it changes, every stage runs again
SHOWN = 80  # most characters of a wrong header in an error

logger = logging.getLogger("preprocess")


SENTENCE = "sentences"  # label of the end of a sentence, which manifests count


class Example(NamedTuple):
    """A row of a published file: a labeled text, or a tagged word, or the end of a sentence, or a whole file."""

    language: str
    label: str
    texts: tuple[str, ...]


def labeled_line(example: Example) -> str:
    """``label TAB text TAB text``."""
    return "\t".join([example.label, *example.texts]) + "\n"


def tagged_line(example: Example) -> str:
    """``word TAB tag``, or an empty line at the end of a sentence."""
    return "\n" if example.label == SENTENCE else "\t".join([*example.texts, example.label]) + "\n"


def copied(example: Example) -> str:
    """The text as it is."""
    return example.texts[0]


@dataclass(frozen=True)
class Part:
    """The output of one published file."""

    name: str  # of the stage
    source: Path
    files: dict[str, str]  # language -> path in the output folder
    read: Callable[[Path], Iterator[Example]]  # languages whose examples are written
    placeholder: str = ""  # text in place of a missing sentence
    optional: bool = False  # if true, a language without examples is left out; otherwise it is an error
    keeps_empty: bool = False  # if true, an empty text is written as `_`, so that no line is missing
    settings: tuple[str, ...] = ()  # other settings that the result depends on
    line: Callable[[Example], str] = labeled_line  # what is written of an example


# Reading


def read_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    r"""Yields the number and the fields of each line, with one space for each run of white space in a field.

    Only b"\n" ends a line and only a tab ends a field: quote characters are text. Empty lines are skipped.

    Raises UserError for a line that is not UTF-8 or has another number of fields than the first, and for an empty file.
    """
    expected = 0
    with open(path, "rb") as file:
        for number, line in enumerate(text_of(file), start=1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError:
                raise UserError(f"{path}, line {number}: not UTF-8") from None
            if not text.strip("\r\n"):
                continue
            fields = [" ".join(field.split()) for field in text.split("\t")]
            expected = expected or len(fields)
            if len(fields) != expected:
                raise UserError(
                    f"{path}, line {number}: expected {expected} fields as in the first line, found {len(fields)}"
                )
            yield number, fields
    if not expected:
        raise UserError(f"{path}, line 1: the file is empty")


def read_table(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Yields the number of each line below the header, and its fields in the order of `columns`.

    Raises UserError as `read_rows` does, and if the header lacks a column.
    """
    rows = read_rows(path)
    number, header = next(rows)
    if missing := [name for name in columns if name not in header]:
        raise UserError(
            f"{path}, line {number}: expected a header with {', '.join(columns)}; {', '.join(missing)} is not in "
            f"{' '.join(header)[:SHOWN]!r}"
        )
    places = [header.index(name) for name in columns]
    for number, fields in rows:
        yield number, [fields[place] for place in places]


def tagged(path: Path, language: str, separator: str, labels: bool = True) -> Iterator[Example]:
    """Yields the words and ends of sentences of a file with a word per line and an empty line after each sentence.

    Lines that begin with -DOCSTART- are skipped.

    Args:
        separator: what separates the word from its tag.
        labels: whether there are tags; otherwise a line is a word, which stays unlabeled.

    Raises UserError as `read_rows` does, and for a line without a tag.
    """
    inside = False
    with open(path, "rb") as file:
        for number, line in enumerate(text_of(file), start=1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip("\r\n")
            except UnicodeDecodeError:
                raise UserError(f"{path}, line {number}: not UTF-8") from None
            if not text.strip(" \t") or text.startswith("-DOCSTART-"):
                if inside:
                    yield Example(language, SENTENCE, ())
                inside = False
                continue
            word, _, tag = text.strip(" \t").rpartition(separator) if labels else (text, "", UNLABELED)
            if not word or not tag.strip():
                raise UserError(f"{path}, line {number}: expected a word and a tag, found {text[:40]!r}")
            yield Example(language, tag, (" ".join(word.split()) or UNLABELED,))
            inside = True
    if inside:
        yield Example(language, SENTENCE, ())


def questions(path: Path, language: str) -> Iterator[Example]:
    """Yields a file in SQuAD's format as one example; raises UserError as `read_questions` does."""
    read_questions(path, language)
    yield Example(language, "files", (read_text(path).decode("utf-8-sig"),))


def one_of(path: Path, number: int, kind: str, found: str, valid: Mapping[str, str]) -> str:
    """The value of a field in `valid`; raises UserError that names the line if there is none."""
    if found not in valid:
        raise UserError(f"{path}, line {number}: {kind} {found!r} is none of {', '.join(valid)}")
    return valid[found]


# Writing


def build(folder: Path, source: Path, parts: Sequence[Part], described: dict) -> None:
    """Writes the files of every part, and the manifest; skips parts that are up to date.

    Args:
        folder: folder to write.
        source: the release; the manifest names its files relative to it.
        parts: the parts to write.
        described: first entries of the manifest.

    Raises UserError for errors that the user can correct.
    """
    parts = [replace(part, source=stored(part.source)) for part in parts]
    for part in parts:
        if not part.source.is_file():
            raise UserError(f"{part.source}: there is no such file")
    stages = Stages(folder)
    with locked(stages):
        counts, hashes = {}, {}
        for part in parts:
            sha256 = hashes[str(part.source.relative_to(source))] = sha256_of(part.source)
            counts |= stages.run(
                part.name,
                [FORMAT, sha256, part.files, part.settings],
                [folder / name for name in part.files.values()],
                lambda: _write(folder, part),
            )
        manifest = {"format": FORMAT, **described, "counts": counts, "files": hashes}
        if read_json(folder / "manifest.json") != manifest:
            write_json(folder / "manifest.json", manifest)


def _write(folder: Path, part: Part) -> dict[str, dict]:
    """Writes a part; returns, for each file, its lines, lines by label, and pairs left out for a missing sentence."""
    left_out = ["empty", *([part.placeholder] if part.placeholder else [])]
    empty: dict[str, Any] = {"lines": 0, **dict.fromkeys(left_out, 0)}
    counts = {name: {**empty, "labels": {}} for name in part.files.values()}
    with ExitStack() as stack:
        files = {}
        for language, label, texts in tqdm(part.read(part.source), desc=part.name, unit=" lines", unit_scale=True):
            name = part.files[language]
            if part.keeps_empty and not all(texts):
                counts[name]["empty"] += 1
                texts = tuple(text or UNLABELED for text in texts)
            if not all(texts) or part.placeholder in texts:
                counts[name][part.placeholder if all(texts) else "empty"] += 1
                continue
            if name not in files:
                files[name] = stack.enter_context(replacing(folder / name))
            files[name].write(part.line(Example(language, label, texts)).encode())
            counts[name]["lines"] += 1
            counts[name]["labels"][label] = counts[name]["labels"].get(label, 0) + 1
        for language, name in part.files.items():
            if not part.optional and name not in files:
                raise UserError(f"{part.source}: there is no labeled pair in language {language!r}")
    for name, count in counts.items():
        if not count["lines"]:
            logger.warning("%s: no labeled pairs for %s, which is not written", part.source, name)
        elif any(count[reason] for reason in left_out):
            done = "wrote as _" if part.keeps_empty else "left out"
            logger.info("%s: %s %s", name, done, ", ".join(f"{count[reason]} {reason}" for reason in left_out))
    return counts


# Commands


def argument_parser(name: str, description: str, release: str, languages: Sequence[str]) -> argparse.ArgumentParser:
    """Makes a parser of the arguments of all readers of labeled pairs: SOURCE, DEST and --langs."""
    parser = argparse.ArgumentParser(prog=f"python -m preprocess.readers.{name}", description=description)
    parser.add_argument("source", metavar="SOURCE", type=Path, help=release)
    parser.add_argument("destination", metavar="DEST", type=Path, help="folder to write")
    parser.add_argument(
        "--langs",
        default=",".join(languages),
        metavar="XX,XX",
        help=f"any of {', '.join(languages)} (default: all)",
    )
    return parser


def read_release(
    name: str,
    corpus: str,
    release: str,
    languages: Sequence[str],
    parts: Callable[[Path, list[str]], list[Part]],
    arguments: list[str] | None,
) -> int:
    """Runs a reader without other arguments: writes the `parts` of SOURCE in --langs; returns the exit status."""
    options = argument_parser(name, f"{corpus}.", release, languages).parse_args(arguments)

    def work() -> None:
        found = chosen(options.langs, languages)
        described = {"corpus": [corpus], "languages": found}
        build(options.destination, options.source, parts(options.source, found), described)

    return command.run(name, work)


def read_benchmark(
    name: str,
    corpus: str,
    release: str,
    languages: Mapping[str, Sequence[str]],
    parts: Callable[[str, Path, list[str]], Iterator[Part]],
    arguments: list[str] | None,
) -> int:
    """Runs a reader with --tasks: writes the `parts` of each task of SOURCE in --langs; returns the exit status.

    Args:
        languages: the languages of each task.
    """
    known = sorted({language for codes in languages.values() for language in codes})
    parser = argument_parser(name, f"{corpus}.", release, known)
    parser.add_argument(
        "--tasks", default=",".join(languages), help="tasks, separated by commas (default: %(default)s)"
    )
    options = parser.parse_args(arguments)

    def work() -> None:
        tasks, codes = names_of("--tasks", options.tasks), chosen(options.langs, known)
        if unknown := [task for task in tasks if task not in languages]:
            raise UserError(f"--tasks {options.tasks}: {unknown[0]} is none of {', '.join(languages)}")
        found = [
            part
            for task in tasks
            for part in parts(task, options.source, [code for code in languages[task] if code in codes])
        ]
        build(options.destination, options.source, found, {"corpus": [corpus], "tasks": tasks, "languages": codes})

    return command.run(name, work)


def chosen(option: str, languages: Sequence[str]) -> list[str]:
    """The languages of --langs; raises UserError for a language that the release lacks."""
    found = list(dict.fromkeys(option.split(",")))
    if unknown := [language for language in found if language not in languages]:
        raise UserError(f"--langs: unknown {', '.join(map(repr, unknown))}; valid: {', '.join(languages)}")
    return found


def inside(source: Path, name: str) -> Path:
    """The folder `name` in `source`, or `source` itself if there is none."""
    return source / name if (source / name).is_dir() else source


def train_path(language: str) -> str:
    """Path of training text; text translated from English is in a separate folder."""
    return f"train.{language}.tsv" if language == "en" else f"translate_train/train.{language}.tsv"
