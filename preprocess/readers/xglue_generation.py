"""Reads XGLUE's generation tasks: sources and targets.

    fairseq-xl data read xglue-generation ntg xglue_full_dataset.tar.gz corpora/ntg

TASK is ntg, news and their titles, or qg, passages and questions that they answer. Each has a folder of aligned lines,
``NTG/xglue.ntg.LANGUAGE.{src,tgt}.{train,dev,test}`` or ``QG/xglue.qg.…``. Training text is English only. Test sets of
the first release have no targets: their sources are written alone.
"""

import io
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from fairseq_xl.commands import parser_of
from fairseq_xl.errors import UserError
from fairseq_xl.io.compressed import lines_of, stored, text_of
from fairseq_xl.io.files import replacing
from preprocess.commands import run
from preprocess.readers import checked
from preprocess.readers.aligned import Pairs
from preprocess.readers.archives import unpacked
from preprocess.readers.labeled import inside, logger, selected_languages
from preprocess.readers.problems import Problems

LANGUAGES = {"ntg": ("de", "en", "es", "fr", "ru"), "qg": ("de", "en", "es", "fr", "it", "pt")}
SIDES = ("src", "tgt")


class FilePair(NamedTuple):
    """The output of one published pair of files, or of sources alone."""

    name: str  # SPLIT.LANGUAGE: the output files have this name and .src or .tgt
    files: list[Path]
    is_test: bool  # a test set keeps every line, since outputs are numbered, and may have no targets


def parts(task: str, release: Path, languages: list[str]) -> Iterator[FilePair]:
    """Yields the parts of `release`, the task's folder or the folder that contains it."""
    folder = inside(release, task.upper())
    for language in languages:
        for split, split_name in (("train", "train"), ("valid", "dev"), ("test", "test")):
            if split == "train" and language != "en":
                continue
            files = [stored(folder / f"xglue.{task}.{language}.{side}.{split_name}") for side in SIDES]
            has_targets = split != "test" or files[1].is_file() or not files[0].is_file()
            yield FilePair(f"{split}.{language}", files if has_targets else files[:1], is_test=split == "test")


def build(folder: Path, release: Path, header: dict, parts: list[FilePair]) -> None:
    """Checks every part, then writes the files of each, and the manifest (`preprocess.readers.checked.build`)."""

    def output(part: FilePair) -> checked.Output:
        written = [folder / f"{part.name}.{side}" for side, _ in zip(SIDES, part.files)]
        return checked.Output(
            *(part.name, part.files, part.name, written),
            lambda: _problems(part),
            lambda: {part.name: _write(written, part)},
        )

    checked.build(folder, release, [output(part) for part in parts], header)
    if without := [part.name for part in parts if len(part.files) == 1]:
        logger.warning("no targets of %s, which can be generated, but not scored", ", ".join(without))


def _pairs(part: FilePair, problems: Problems, counts: dict[str, int]) -> Iterator[tuple[str, ...]]:
    """Yields the pairs of a part; `counts` gets their number, and that of pairs with an empty side."""
    before, files = problems.count, part.files
    with ExitStack() as stack:
        sides = [_decoded(path, stack.enter_context(open(path, "rb")), problems) for path in files]
        pairs = Pairs(str(files[0]), *sides, keep_empty=part.is_test)
        try:
            yield from pairs
        except UserError as error:
            problems.add(str(error))
    if not pairs.counts["pairs"] and problems.count == before:
        problems.add(f"{files[0]}: there is no {'pair of two texts' if len(files) > 1 else 'text'}")
    counts |= {name: pairs.counts[name] for name in ("pairs", "empty")}


def _problems(part: FilePair) -> Problems:
    problems = Problems()
    for _ in _pairs(part, problems, {}):
        pass
    return problems


def _write(written: list[Path], part: FilePair) -> dict[str, int]:
    """Writes the files; returns the counts of pairs, and of pairs with an empty side, which only test sets keep."""
    problems, counts = Problems(), {}
    with ExitStack() as stack:
        files = [stack.enter_context(replacing(path, make_folder=True)) for path in written]
        for texts in _pairs(part, problems, counts):
            for file, text in zip(files, texts):
                file.write(text.encode() + b"\n")
        problems.refuse()  # of files that have changed since they were checked
    if counts["empty"]:
        action = "kept" if part.is_test else "left out"
        logger.info("%s: %s %d pairs with an empty side", part.files[0], action, counts["empty"])
    return counts


def _decoded(path: Path, file: io.BufferedReader, problems: Problems) -> Iterator[bytes]:
    """Yields the lines; a line that is not UTF-8 is a problem."""
    for line_number, line in enumerate(lines_of(text_of(file), str(path)), start=1):
        try:
            line.decode("utf-8")
            yield line
        except UnicodeDecodeError:
            problems.add(f"{path}, line {line_number}: not UTF-8")
            yield b"?"  # so that both sides have as many lines


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    parser = parser_of(__name__)
    parser.add_argument("task", metavar="TASK", choices=LANGUAGES, help="ntg or qg")
    parser.add_argument(
        "release",
        metavar="RELEASE",
        type=Path,
        help="xglue_full_dataset.tar.gz, or the folder that it contains, or NTG or QG in this folder",
    )
    parser.add_argument("destination", metavar="DEST", type=Path, help="folder to write")
    parser.add_argument("--langs", metavar="XX,YY", help="languages (default: all that the task has)")
    options = parser.parse_args(arguments)

    def work() -> None:
        valid = LANGUAGES[options.task]
        languages = selected_languages(options.langs or ",".join(valid), valid)
        header = {"corpus": [f"XGLUE {options.task.upper()}"], "languages": languages}
        files = {path.name for part in parts(options.task, options.release, languages) for path in part.files}
        with unpacked(options.release, options.destination, files) as release:
            build(options.destination, release, header, list(parts(options.task, release, languages)))

    return run(work, options.destination, "xglue_generation: ")
