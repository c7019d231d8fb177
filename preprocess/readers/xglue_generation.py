"""The command: ``python -m preprocess.readers.xglue_generation TASK SOURCE DEST``, sources and targets of XGLUE.

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
from preprocess.stages import Stages, locked

FORMAT = 1  # of outputs; if it changes, every stage runs again
LANGUAGES = {"ntg": ("de", "en", "es", "fr", "ru"), "qg": ("de", "en", "es", "fr", "it", "pt")}
SIDES = ("src", "tgt")


class Part(NamedTuple):
    """The output of one published pair of files."""

    name: str  # SPLIT.LANGUAGE: the output files have this name and .src or .tgt
    sources: tuple[Path, Path]
    optional: bool  # whether the part is left out if it has no targets


def parts(task: str, source: Path, languages: list[str]) -> Iterator[Part]:
    """The parts of the release; `source` is the task's folder or the folder that contains it."""
    folder = inside(source, task.upper())
    for language in languages:
        for split, theirs in (("train", "train"), ("valid", "dev"), ("test", "test")):
            if split == "train" and language != "en":
                continue
            files = [stored(folder / f"xglue.{task}.{language}.{side}.{theirs}") for side in SIDES]
            if not files[0].is_file():
                raise UserError(f"{files[0]}: there is no such file")
            yield Part(f"{split}.{language}", (files[0], files[1]), optional=split == "test")


def build(folder: Path, source: Path, described: dict, found: list[Part]) -> None:
    """Writes the files of every part, and the manifest; skips parts that are up to date."""
    stages = Stages(folder)
    with locked(stages):
        counts, hashes = {}, {}
        for name, sources, optional in found:
            if optional and not sources[1].is_file():
                logger.warning("%s: there is no such file, and %s is not written", sources[1], name)
                continue
            if not sources[1].is_file():
                raise UserError(f"{sources[1]}: there is no such file")
            sums = {str(path.relative_to(source)): sha256_of(path) for path in sources}
            written = [folder / f"{name}.{side}" for side in SIDES]
            counts |= stages.run(name, [FORMAT, sums, name], written, lambda: {name: _write(written, sources)})
            hashes |= sums
        manifest = {"format": FORMAT, **described, "counts": counts, "files": hashes}
        if read_json(folder / "manifest.json") != manifest:
            write_json(folder / "manifest.json", manifest)


def _write(written: list[Path], sources: tuple[Path, Path]) -> dict[str, int]:
    """Writes both files; returns the numbers of pairs, and of pairs left out for an empty side."""
    with open(sources[0], "rb") as first, open(sources[1], "rb") as second:
        sides = [_decoded(path, text_of(file)) for path, file in zip(sources, (first, second))]
        pairs = Pairs(str(sources[0]), *sides)
        with replacing(written[0]) as source, replacing(written[1]) as target:
            for texts in pairs:
                for file, text in zip((source, target), texts):
                    file.write(text.encode() + b"\n")
            if not pairs.counts["pairs"]:
                raise UserError(f"{sources[0]}: there is no pair of two texts")
    if pairs.counts["empty"]:
        logger.info("%s: left out %d pairs with an empty side", sources[0], pairs.counts["empty"])
    return {name: pairs.counts[name] for name in ("pairs", "empty")}


def _decoded(path: Path, lines: Iterator[bytes]) -> Iterator[bytes]:
    """Yields the lines without a byte-order mark; raises UserError for a line that is not UTF-8."""
    for number, line in enumerate(lines, start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8").encode()
        except UnicodeDecodeError:
            raise UserError(f"{path}, line {number}: not UTF-8") from None


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m preprocess.readers.xglue_generation", description="XGLUE's titles of news and questions."
    )
    parser.add_argument("task", metavar="TASK", choices=LANGUAGES, help="ntg or qg")
    parser.add_argument(
        "source",
        metavar="SOURCE",
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
        found = list(parts(options.task, options.source, languages))
        build(options.destination, options.source, described, found)

    return command.run("xglue_generation", work)


if __name__ == "__main__":
    command.end_on_sigterm()
    sys.exit(main())
