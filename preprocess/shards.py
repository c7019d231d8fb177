"""Divides training text into shards: contiguous parts of whole documents, of about as many lines each.

Text without an empty line has no documents, and is divided between lines. The two sides of bitext are divided at the
same lines. Only the bounds of the shards are computed here; memory does not grow with the text.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fairseq_xl.io.text import is_blank
from preprocess import check
from preprocess.config import Config, Folder, Split
from preprocess.files import read_blocks

#: by first byte: whether a UTF-8 sequence may be white space or an invisible character
MAY_BE_BLANK = np.zeros(256, dtype=bool)
MAY_BE_BLANK[[*range(0x21), 0x7F, 0xC2, 0xCD, 0xD8, 0xE1, 0xE2, 0xE3, 0xEF, 0xF0, 0xF3]] = True
UNEQUAL = 2.0  # ratio of the lines of two shards above which a warning says that they are unequal


class Section(NamedTuple):
    """The bytes [begin, end) of a file's text, decompressed."""

    file: int  # index of the file in its side
    begin: int
    end: int | None  # None: the end of the file


class Position(NamedTuple):
    """The beginning of a line, the same line on all sides."""

    line: int  # in all files together, from 0
    file: int  # index of the file in its side
    bytes: tuple[int, ...]  # offset in the text of that file, of each side


def train_splits(config: Config) -> Iterator[tuple[Folder, Split]]:
    """Yields the training text of each folder."""
    return ((folder, split) for folder in config.folders for split in folder.splits if split.name == "train")


def raise_problems(config: Config, reports: dict[str, check.Report]) -> None:
    """Raises UserError with all training texts of fewer documents, or lines, than shards."""
    messages, shard_count = [], config.shards or 1
    for folder, split in train_splits(config) if shard_count > 1 else ():
        counted, lines = count(config, split, reports)
        parts, noun = (lines, "lines") if counted is None else (counted, "documents")
        if parts < shard_count:
            kind = "bitext" if len(split.sides) == 2 else "monolingual"
            hint = "" if counted is None else " (documents are separated by empty lines)"
            messages.append(
                f"{kind} {folder.name}: `shards: {shard_count}` needs at least {shard_count} {noun}, the training text "
                f"has {parts}{hint}; use at most shards: {parts}"
            )
    check.raise_problems(messages)


def count(config: Config, split: Split, reports: dict[str, check.Report]) -> tuple[int | None, int]:
    """Counts the documents and lines of training text; None documents if no line is empty on all sides."""
    rows = list(zip(*(side.files for side in split.sides)))
    lines = sum(reports[names[0]].lines for names in rows)
    if all(reports[name].blank_lines == reports[names[0]].blank_lines for names in rows for name in names):
        blank = sum(reports[names[0]].blank for names in rows)
        return sum(reports[names[0]].documents for names in rows) if blank else None, lines
    if not any(True for names in rows for _ in _joint_blank_lines([config.root / name for name in names])):
        return None, lines
    return sum(1 for _ in documents(config, split, reports)), lines


def divide(config: Config, split: Split, reports: dict[str, check.Report], shards: int) -> dict:
    """Divides training text; returns {"sections": [[[Section]]] by shard and side, "lines": [lines of the shard]}."""
    counted, lines = count(config, split, reports)
    if counted is None:
        first_lines = [shard * lines // shards for shard in range(shards)]
        starts = list(_at_lines(config, split, reports, first_lines))
    else:
        starts = shard_starts(documents(config, split, reports), counted, lines, shards)
    starts[0] = Position(0, 0, (0,) * len(split.sides))  # with the empty lines before its first document
    files = len(split.sides[0].files)
    ends = [*starts[1:], Position(lines, files, (0,) * len(split.sides))]
    sections = [[_sections(start, end, side) for side in range(len(split.sides))] for start, end in zip(starts, ends)]
    return {"sections": sections, "lines": [end.line - start.line for start, end in zip(starts, ends)]}


def _sections(start: Position, end: Position, side: int) -> list[Section]:
    """Lists the sections of a side from `start` to `end`."""
    sections = []
    for file in range(start.file, end.file + 1):
        begin = start.bytes[side] if file == start.file else 0
        if file < end.file:
            sections.append(Section(file, begin, None))
        elif end.bytes[side] > begin:
            sections.append(Section(file, begin, end.bytes[side]))
    return sections


def shard_starts(documents: Iterable[Position], count: int, lines: int, shards: int) -> list[Position]:
    """Returns the first document of each shard.

    Shard k begins with the first document from line `k * lines / shards` on. It begins earlier if the remaining
    documents do not suffice for the remaining shards, and later after a document that is longer than a shard.

    Args:
        documents: `count` documents, at least as many as shards.
        lines: number of lines.
    """
    starts: list[Position] = []
    for i, document in enumerate(documents):
        expected = len(starts) < shards and document.line * shards // lines >= len(starts)
        if not starts or expected or shards - (count - i) >= len(starts):
            starts.append(document)
    return starts


def documents(config: Config, split: Split, reports: dict[str, check.Report]) -> Iterator[Position]:
    """Yields the beginnings of all documents; a document ends with its file or before a line empty on all sides."""
    before = 0
    for file, names in enumerate(zip(*(side.files for side in split.sides))):
        line, offsets = 0, (0,) * len(names)  # after the last empty line
        for blank, after in _joint_blank_lines([config.root / name for name in names]):
            if blank > line:
                yield Position(before + line, file, offsets)
            line, offsets = blank + 1, after
        lines = reports[names[0]].lines
        if lines > line:
            yield Position(before + line, file, offsets)
        before += lines


def _joint_blank_lines(paths: list[Path]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yields the index of each line that is empty in each of one or two files, and the offsets after it in each."""
    if len(paths) == 1:
        yield from ((line, (after,)) for line, after in _blank_lines(paths[0]))
        return
    first, second = map(_blank_lines, paths)
    a, b = next(first, None), next(second, None)
    while a and b:
        if a[0] == b[0]:
            yield a[0], (a[1], b[1])
        behind = a[0] <= b[0], b[0] <= a[0]
        a, b = next(first, None) if behind[0] else a, next(second, None) if behind[1] else b


def _blank_lines(path: Path) -> Iterator[tuple[int, int]]:
    """Yields the index of each empty line of a file, and the offset after it."""
    lines = size = 0
    for block in read_blocks(path):
        blank, after, line_count = blank_lines_of(block)
        yield from zip((blank + lines).tolist(), (after + size).tolist())
        lines, size = lines + line_count, size + len(block)


def blank_lines_of(block: bytes) -> tuple[np.ndarray, np.ndarray, int]:
    """Returns the blank lines (k,) of a block of whole lines, the offsets (k,) after them, and the number of lines."""
    data = np.frombuffer(block, dtype=np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    if not block.endswith(b"\n"):
        ends = np.append(ends, len(block))
    starts = np.concatenate(([0], ends[:-1] + 1))
    blank = starts == ends
    for line in np.flatnonzero(~blank & MAY_BE_BLANK[data[np.minimum(starts, len(data) - 1)]]).tolist():
        blank[line] = is_blank(block[starts[line] : ends[line]].decode("utf-8"))
    blank_lines = np.flatnonzero(blank)
    return blank_lines, np.minimum(ends[blank_lines] + 1, len(block)), len(ends)


def _at_lines(
    config: Config, split: Split, reports: dict[str, check.Report], first_lines: list[int]
) -> Iterator[Position]:
    """Yields the positions of `first_lines`, in ascending order."""
    before = 0
    for file, names in enumerate(zip(*(side.files for side in split.sides))):
        lines = reports[names[0]].lines
        targets = [line for line in first_lines if before <= line < before + lines]
        file_lines = [line - before for line in targets]
        for line, offsets in zip(targets, zip(*(_line_starts(config.root / name, file_lines) for name in names))):
            yield Position(line, file, offsets)
        before += lines


def _line_starts(path: Path, targets: list[int]) -> Iterator[int]:
    """Yields the offset in the text of a file of each line of `targets`, in ascending order."""
    lines = size = 0
    waiting = iter(targets)
    line = next(waiting, None)
    for block in read_blocks(path):
        if line is None:
            return
        line_count, starts = block.count(b"\n"), None
        while line is not None and line <= lines + line_count:
            if starts is None:
                starts = np.append(0, np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n")) + 1)
            yield size + int(starts[line - lines])
            line = next(waiting, None)
        lines, size = lines + line_count, size + len(block)


def unequal(lines: list[int]) -> str:
    """Describes the shards with the most and the fewest lines; "" if they are about equal."""
    if max(lines) <= UNEQUAL * max(1, min(lines)):
        return ""
    return f"{min(lines)} lines in shard {lines.index(min(lines))}, {max(lines)} in shard {lines.index(max(lines))}"
