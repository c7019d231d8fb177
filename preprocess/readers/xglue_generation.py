"""The command: ``python -m preprocess.readers.xglue_generation TASK RELEASE DEST``, sources and targets of XGLUE.

TASK is ntg, news and their titles, or qg, passages and questions that they answer. Each has a folder of aligned lines,
``NTG/xglue.ntg.LANGUAGE.{src,tgt}.{train,dev,test}`` and ``QG/xglue.qg.…`` alike. Training text is English only. The
first release had no targets of the test sets.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fairseq_xl.errors import UserError
from fairseq_xl.io.compressed import stored, text_of
from fairseq_xl.io.files import read_json, sha256_of, write_json
from preprocess.files import replacing
from preprocess.readers import command
from preprocess.readers.aligned import Pairs
from preprocess.readers.labeled import chosen, inside, logger
from preprocess.readers.problems import Problems
from preprocess.stages import Stages, locked

FORMAT = 1  # of outputs; if it changes, every stage runs again
LANGUAGES = {"ntg": ("de", "en", "es", "fr", "ru"), "qg": ("de", "en", "es", "fr", "it", "pt")}
SIDES = ("src", "tgt")


class Part(NamedTuple):
    """The output of one published pair of files."""

    name: str  # SPLIT.LANGUAGE: the output files have this name and .src or .tgt
    files: tuple[Path, Path]
    optional: bool  # whether the part is left out if it has no targets


def parts(task: str, release: Path, languages: list[str]) -> Iterator[Part]:
    """The parts of `release`: the task's folder or the folder that contains it."""
    folder = inside(release, task.upper())
    for language in languages:
        for split, theirs in (("train", "train"), ("valid", "dev"), ("test", "test")):
            if split == "train" and language != "en":
                continue
            files = [stored(folder / f"xglue.{task}.{language}.{side}.{theirs}") for side in SIDES]
            yield Part(f"{split}.{language}", (files[0], files[1]), optional=split == "test")


def build(folder: Path, release: Path, described: dict, found: list[Part]) -> None:
    """Checks every part, then writes the files of each, and the manifest; skips parts that are up to date.

    Raises UserError for errors that the user can correct. It lists the problems of all files, and nothing is written.
    """
    problems = Problems()
    found = [part for part in found if _has_targets(part)]
    for part in found:
        for path in part.files:
            if not path.is_file():
                problems.add(f"{path}: there is no such file")
    problems.refuse()
    stages = Stages(folder)
    with locked(stages):
        counts, hashes, runs = {}, {}, []
        for name, files, _ in found:
            sums = {str(path.relative_to(release)): sha256_of(path) for path in files}
            runs.append((name, files, [FORMAT, sums, name], [folder / f"{name}.{side}" for side in SIDES]))
            hashes |= sums
        for name, files, inputs, written in runs:
            if not stages.record(name, inputs, written):
                for _ in _pairs(files, problems, {}):
                    pass
        problems.refuse()
        for name, files, inputs, written in runs:
            counts |= stages.run(name, inputs, written, lambda: {name: _write(written, files)})
        manifest = {"format": FORMAT, **described, "counts": counts, "files": hashes}
        if read_json(folder / "manifest.json") != manifest:
            write_json(folder / "manifest.json", manifest)


def _has_targets(part: Part) -> bool:
    """Whether a part is written: one without targets is left out with a warning if that is possible."""
    if not part.optional or part.files[1].is_file() or not part.files[0].is_file():
        return True
    logger.warning("%s: there is no such file, and %s is not written", part.files[1], part.name)
    return False


def _pairs(files: tuple[Path, Path], problems: Problems, counts: dict[str, int]) -> Iterator[tuple[str, str]]:
    """Yields the pairs of two files; at the end, `counts` has their number and that of pairs with an empty side."""
    before = problems.count
    with open(files[0], "rb") as first, open(files[1], "rb") as second:
        sides = [_decoded(path, text_of(file), problems) for path, file in zip(files, (first, second))]
        pairs = Pairs(str(files[0]), *sides)
        try:
            yield from pairs
        except UserError as error:
            problems.add(str(error))
    if not pairs.counts["pairs"] and problems.count == before:
        problems.add(f"{files[0]}: there is no pair of two texts")
    counts |= {name: pairs.counts[name] for name in ("pairs", "empty")}


def _write(written: list[Path], files: tuple[Path, Path]) -> dict[str, int]:
    """Writes both files; returns the numbers of pairs, and of pairs left out for an empty side."""
    problems, counts = Problems(), {}
    with replacing(written[0]) as source, replacing(written[1]) as target:
        for texts in _pairs(files, problems, counts):
            for file, text in zip((source, target), texts):
                file.write(text.encode() + b"\n")
        problems.refuse()  # of files that have changed since they were checked
    if counts["empty"]:
        logger.info("%s: left out %d pairs with an empty side", files[0], counts["empty"])
    return counts


def _decoded(path: Path, lines: Iterator[bytes], problems: Problems) -> Iterator[bytes]:
    """Yields the lines without a byte-order mark; one that is not UTF-8 is a problem."""
    for number, line in enumerate(lines, start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8").encode()
        except UnicodeDecodeError:
            problems.add(f"{path}, line {number}: not UTF-8")
            yield b"?"  # so that both sides have as many lines


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m preprocess.readers.xglue_generation", description="XGLUE's titles of news and questions."
    )
    parser.add_argument("task", metavar="TASK", choices=LANGUAGES, help="ntg or qg")
    parser.add_argument(
        "release",
        metavar="RELEASE",
        type=Path,
        help="folder of the unpacked release, xglue_full_dataset or NTG or QG in it",
    )
    parser.add_argument("destination", metavar="DEST", type=Path, help="folder to write")
    parser.add_argument("--langs", metavar="XX,XX", help="languages (default: all that the task has)")
    options = parser.parse_args(arguments)

    def work() -> None:
        valid = LANGUAGES[options.task]
        languages = chosen(options.langs or ",".join(valid), valid)
        described = {"corpus": [f"XGLUE {options.task.upper()}"], "languages": languages}
        found = list(parts(options.task, options.release, languages))
        build(options.destination, options.release, described, found)

    return command.run("xglue_generation", work)


if __name__ == "__main__":
    command.end_on_sigterm()
    sys.exit(main())
