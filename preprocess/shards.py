"""Divides training text into shards: contiguous parts of whole documents, of about as many lines each.

Text without an empty line has no documents, and is divided between lines. The two sides of bitext are divided at the
same lines. Only the places of the shards are computed here; memory does not grow with the text.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fairseq_xl.errors import UserError
from fairseq_xl.io.text import is_blank
from preprocess.check import MOST_PROBLEMS, Report
from preprocess.config import Config, Folder, Split
from preprocess.files import read_blocks

#: by first byte: whether a UTF-8 sequence may be white space or an invisible character
MAY_BE_BLANK = np.zeros(256, dtype=bool)
MAY_BE_BLANK[[*range(0x21), 0x7F, 0xC2, 0xCD, 0xD8, 0xE1, 0xE2, 0xE3, 0xEF, 0xF0, 0xF3]] = True
UNEQUAL = 2.0  # ratio of the lines of two shards above which a warning says that they are unequal


class Section(NamedTuple):
    """The bytes [begin, end) of a file's text, decompressed."""

    file: int  # number of the file in its side
    begin: int
    end: int | None  # None: the end of the file


class Place(NamedTuple):
    """The beginning of a line, the same line on all sides."""

    line: int  # in all files together, from 0
    file: int  # number of the file in its side
    bytes: tuple[int, ...]  # in the text of that file, of each side


def train_splits(config: Config) -> Iterator[tuple[Folder, Split]]:
    """The training text of each folder that has some."""
    return ((folder, split) for folder in config.folders for split in folder.splits if split.name == "train")


def problems(config: Config, reports: dict[str, Report]) -> list[str]:
    """A sentence for each training text that has fewer parts than there are shards."""
    found, number = [], config.shards or 1
    for folder, split in train_splits(config) if number > 1 else ():
        counted, lines = count(config, split, reports)
        parts, unit = (lines, "lines") if counted is None else (counted, "documents")
        if parts < number:
            kind = "bitext" if len(split.sides) == 2 else "monolingual"
            told = "" if counted is None else " (documents are separated by empty lines)"
            found.append(
                f"{kind} {folder.name}: `shards: {number}` needs at least {number} {unit}, the training text has "
                f"{parts}{told}; use at most shards: {parts}"
            )
    return found


def count(config: Config, split: Split, reports: dict[str, Report]) -> tuple[int | None, int]:
    """Documents and lines of training text; None documents if no line is empty, on both sides for bitext."""
    rows = list(zip(*(side.files for side in split.sides)))
    lines = sum(reports[names[0]].lines for names in rows)
    if all(reports[name].blank_lines == reports[names[0]].blank_lines for names in rows for name in names):
        blank = sum(reports[names[0]].blank for names in rows)
        return sum(reports[names[0]].documents for names in rows) if blank else None, lines
    if not any(True for names in rows for _ in _joint_blank_lines([config.root / name for name in names])):
        return None, lines
    return sum(1 for _ in documents(config, split, reports)), lines


def divide(config: Config, split: Split, reports: dict[str, Report], shards: int) -> dict:
    """Divides training text into shards.

    Returns: {"sections": for each shard and side the `Section`s, "lines": of each shard}. The result is JSON.
    """
    counted, lines = count(config, split, reports)
    if counted is None:
        wanted = [shard * lines // shards for shard in range(shards)]
        places = list(_at_lines(config, split, reports, wanted))
    else:
        places = first_of_each(documents(config, split, reports), counted, lines, shards)
    places[0] = Place(0, 0, (0,) * len(split.sides))  # with the empty lines before its first document
    files = len(split.sides[0].files)
    ends = [*places[1:], Place(lines, files, (0,) * len(split.sides))]
    sections = [
        [_sections(place, end, number) for number in range(len(split.sides))] for place, end in zip(places, ends)
    ]
    return {"sections": sections, "lines": [end.line - place.line for place, end in zip(places, ends)]}


def _sections(place: Place, end: Place, side: int) -> list[Section]:
    """The sections of a side from one place to another."""
    found = []
    for file in range(place.file, end.file + 1):
        begin = place.bytes[side] if file == place.file else 0
        if file < end.file:
            found.append(Section(file, begin, None))
        elif end.bytes[side] > begin:
            found.append(Section(file, begin, end.bytes[side]))
    return found


def first_of_each(found: Iterable[Place], documents: int, lines: int, shards: int) -> list[Place]:
    """The first document of each shard.

    Shard k begins with the first document from line k / `shards` of all lines on. It begins earlier if the remaining
    documents would not suffice for the remaining shards, and later after a document that is longer than a shard.

    Args:
        found: the `documents` documents, of which there are at least as many as shards.
        lines: number of lines.
    """
    places: list[Place] = []
    for number, place in enumerate(found):
        expected = len(places) < shards and place.line * shards // lines >= len(places)
        if not places or expected or shards - (documents - number) >= len(places):
            places.append(place)
    return places


def documents(config: Config, split: Split, reports: dict[str, Report]) -> Iterator[Place]:
    """The beginnings of all documents, which end with their file or before a line that is empty on all sides."""
    before = 0
    for number, names in enumerate(zip(*(side.files for side in split.sides))):
        line, places = 0, (0,) * len(names)  # after the last empty line
        for blank, after in _joint_blank_lines([config.root / name for name in names]):
            if blank > line:
                yield Place(before + line, number, places)
            line, places = blank + 1, after
        lines = reports[names[0]].lines
        if lines > line:
            yield Place(before + line, number, places)
        before += lines


def _joint_blank_lines(paths: list[Path]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Numbers of the lines that are empty in each of one or two files, and the bytes after them in each."""
    if len(paths) == 1:
        yield from ((line, (after,)) for line, after in _blank_lines(paths[0]))
        return
    first, second = map(_blank_lines, paths)
    one, other = next(first, None), next(second, None)
    while one and other:
        if one[0] == other[0]:
            yield one[0], (one[1], other[1])
        behind = one[0] <= other[0], other[0] <= one[0]
        one, other = next(first, None) if behind[0] else one, next(second, None) if behind[1] else other


def _blank_lines(path: Path) -> Iterator[tuple[int, int]]:
    """Numbers of the empty lines of a file, and the bytes of text up to their ends."""
    lines = size = 0
    for block in read_blocks(path):
        blank, after, of_block = blank_lines_of(block)
        yield from zip((blank + lines).tolist(), (after + size).tolist())
        lines, size = lines + of_block, size + len(block)


def blank_lines_of(block: bytes) -> tuple[np.ndarray, np.ndarray, int]:
    """Blank lines (k,) of a block of whole lines, the bytes (k,) up to their ends, number of lines."""
    data = np.frombuffer(block, dtype=np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    if not block.endswith(b"\n"):
        ends = np.append(ends, len(block))
    starts = np.concatenate(([0], ends[:-1] + 1))
    blank = starts == ends
    for line in np.flatnonzero(~blank & MAY_BE_BLANK[data[np.minimum(starts, len(data) - 1)]]).tolist():
        blank[line] = is_blank(block[starts[line] : ends[line]].decode("utf-8"))
    numbers = np.flatnonzero(blank)
    return numbers, np.minimum(ends[numbers] + 1, len(block)), len(ends)


def _at_lines(config: Config, split: Split, reports: dict[str, Report], wanted: list[int]) -> Iterator[Place]:
    """The places of `wanted` lines, in ascending order."""
    before = 0
    for number, names in enumerate(zip(*(side.files for side in split.sides))):
        lines = reports[names[0]].lines
        of_file = [line for line in wanted if before <= line < before + lines]
        numbers = [line - before for line in of_file]
        for line, places in zip(of_file, zip(*(_line_starts(config.root / name, numbers) for name in names))):
            yield Place(line, number, places)
        before += lines


def _line_starts(path: Path, numbers: list[int]) -> Iterator[int]:
    """Yields the byte at which each line of `numbers`, in ascending order, begins in the text of a file."""
    lines = size = 0
    waiting = iter(numbers)
    line = next(waiting, None)
    for block in read_blocks(path):
        if line is None:
            return
        of_block, starts = block.count(b"\n"), None
        while line is not None and line <= lines + of_block:
            if starts is None:
                starts = np.append(0, np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n")) + 1)
            yield size + int(starts[line - lines])
            line = next(waiting, None)
        lines, size = lines + of_block, size + len(block)


def unequal(lines: list[int]) -> str:
    """Describes the shards with the most and the fewest lines; "" if they are about equal."""
    if max(lines) <= UNEQUAL * max(1, min(lines)):
        return ""
    return f"{min(lines)} lines in shard {lines.index(min(lines))}, {max(lines)} in shard {lines.index(max(lines))}"


def raise_problems(config: Config, reports: dict[str, Report]) -> None:
    """Raises UserError with all `problems`."""
    if found := problems(config, reports):
        listed = "".join(f"\n  - {each}" for each in found[:MOST_PROBLEMS])
        listed += f"\n  and {len(found) - MOST_PROBLEMS} more" if len(found) > MOST_PROBLEMS else ""
        raise UserError(f"{len(found)} problem(s) in the description and its files:{listed}")
