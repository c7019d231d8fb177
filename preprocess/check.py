"""Checks every input file before any other work, and lists all problems at once."""

import hashlib
import logging
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from tqdm import tqdm

from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.language_identification import Languages, LineSample, describe_sample, other_languages
from fairseq_xl.io.files import FORMATS, read_json, write_json
from fairseq_xl.io.text import texts_of
from preprocess.config import Config
from preprocess.files import Workers, read_blocks, texts_in
from preprocess.stages import key_of

LONG_TOKENS = 1000  # words, separated by white space, of the longest line that is not over-long
LONG_CHARACTERS = 4000  # characters of that line, for text without spaces (Chinese, Thai)
MAX_BITMAP = 1 << 28  # bits (32 MiB): memory for counting repeated lines is fixed, and the count approximate
MOST_PROBLEMS, LONGEST_PROBLEM = 100, 1000  # maximum number of problems listed, and of characters of each
NUL = b"\0"  # ends a string in some programs, and is a sign of a binary file

logger = logging.getLogger("preprocess")


@dataclass
class Report:
    """Counts of one file."""

    lines: int = 0
    blank: int = 0
    documents: int = 0  # runs of lines that are not blank
    over_long: int = 0
    first_over_long: int = 0  # its line, from 1
    duplicates: int = 0  # approximate number of repeated lines, from hashes in a bitmap
    ends_blank: bool = True  # whether the last line is blank and ends a document
    sha256: str = ""
    blank_lines: str = ""  # hash of the numbers of blank lines: equal on both sides of well-formed bitext
    problems: list[str] = field(default_factory=list)
    languages: Languages = field(default_factory=dict)  # of sampled lines


@dataclass
class _Block:
    """Counts of one block; line numbers start from 0 in each block."""

    lines: int
    blank: np.ndarray  # line numbers
    documents: int  # runs that begin in this block, including a run at its first line
    over_long: list[int]  # line numbers
    hashes: np.ndarray  # uint64, of the lines that are not blank
    invalid: list[int]  # line numbers
    nul: list[int]  # line numbers


def examine(block: bytes) -> _Block:
    """Counts the lines of a block of whole lines."""
    try:
        lines = texts_of(block)
        invalid = []
    except UnicodeDecodeError:
        lines = texts_of(block, errors="replace")
        invalid = [i for i, line in enumerate(block.split(b"\n")) if not _is_utf8(line)]
    full = np.array([bool(line) for line in lines])
    hashes = [hashlib.blake2b(line.encode(), digest_size=8).digest() for line in lines if line]
    return _Block(
        lines=len(lines),
        blank=np.flatnonzero(~full),
        documents=int(full[0]) + int((full[1:] & ~full[:-1]).sum()),
        over_long=[i for i, line in enumerate(lines) if len(line) > LONG_CHARACTERS or line.count(" ") >= LONG_TOKENS],
        hashes=np.frombuffer(b"".join(hashes), dtype=np.uint64),
        invalid=invalid,
        nul=[i for i, line in enumerate(block.split(b"\n")) if NUL in line] if NUL in block else [],
    )


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


class _Seen:
    """Counts repeated hashes with a bitmap of fixed size; different lines that share a bit count as repeated."""

    def __init__(self, size: int):
        bits = 1 << 16
        while bits < min(4 * size, MAX_BITMAP):  # the size in bytes is far above the number of lines
            bits *= 2
        self.bitmap = np.zeros(bits // 8, dtype=np.uint8)
        self.mask = np.uint64(bits - 1)

    def add(self, hashes: np.ndarray) -> int:
        """Adds `hashes`; returns the number of repetitions, within this call or of earlier calls."""
        positions = np.unique(hashes & self.mask)
        byte, shift = (positions >> np.uint64(3)).astype(np.int64), (positions & np.uint64(7)).astype(np.uint8)
        bit = np.uint8(1) << shift
        repeated = int((self.bitmap[byte] & bit).astype(bool).sum())
        np.bitwise_or.at(self.bitmap, byte, bit)
        return len(hashes) - len(positions) + repeated


def check_file(name: str, path: Path, workers: Workers, progress: tqdm) -> Report:
    """Checks one file, which problems call `name`."""
    report, seen, sample = Report(), _Seen(path.stat().st_size), LineSample()
    content, blank_lines = hashlib.sha256(), hashlib.sha256()
    invalid, nul, over_long = [], [], []  # [number of the first line, number of lines]
    unread = []  # why the file could not be read to its end

    def watched() -> Iterable[bytes]:
        try:
            for block in read_blocks(path, progress.update):
                content.update(block)
                sample.add(block.removesuffix(b"\n").split(b"\n"))
                yield block
        except UserError as error:  # for a line that is too long, or damaged compressed data
            unread.append(str(error))

    for block in workers.map(examine, watched()):
        blank_lines.update((block.blank + report.lines).tobytes())
        _count(invalid, block.invalid, report.lines)
        _count(nul, block.nul, report.lines)
        _count(over_long, block.over_long, report.lines)
        begins_full = not len(block.blank) or block.blank[0] != 0
        report.documents += block.documents - int(begins_full and not report.ends_blank)
        report.lines += block.lines
        report.blank += len(block.blank)
        report.duplicates += seen.add(block.hashes)
        report.ends_blank = bool(len(block.blank)) and int(block.blank[-1]) == block.lines - 1
    if invalid:
        report.problems.append(f"{name}: invalid UTF-8 in {_lines(invalid)}")
    if nul:
        report.problems.append(f"{name}: a NUL character, which no text has, in {_lines(nul)}; is it a binary file?")
    report.first_over_long, report.over_long = over_long or (0, 0)
    report.problems += unread
    if report.lines == report.blank and not unread:
        report.problems.append(f"{name}: empty, there is no sentence in it: leave the file out")
    report.languages = sample.languages()
    report.sha256, report.blank_lines = content.hexdigest(), blank_lines.hexdigest()
    return report


def _count(lines: list[int], block_lines: list[int], offset: int) -> None:
    """Updates [number of the first line, number of lines]; a list of all lines would grow with the file."""
    if block_lines:
        lines[:] = [lines[0] if lines else offset + block_lines[0] + 1, sum(lines[1:]) + len(block_lines)]


def _lines(lines: list[int]) -> str:
    return f"line {lines[0]} ({lines[1]} line(s) in all)"


def check(config: Config, problems: list[str], count: int, records: Path | None) -> dict[str, Report]:
    """Checks every input; raises UserError with all problems, first `problems`, those of the description.

    A file with the size and times of an earlier check is not read again. `records` is the folder of earlier checks;
    None stores none. `count` is the number of processes.
    """
    reports, todo = {}, []
    problems = list(problems)
    for name in config.files():
        path = config.root / name
        if not path.is_file():
            problems.append(f"{name}: there is no such file in {config.root}")
            continue
        record = read_json(_record(records, path)) if records else None
        if record and record["state"] == _state(path):
            reports[name] = Report(**record["report"])
        else:
            todo.append(name)
    total = sum((config.root / name).stat().st_size for name in todo)
    hidden = None if todo else True  # None: shown in a terminal only
    with Workers(count) as workers, tqdm(total=total, unit="B", unit_scale=True, desc="check", disable=hidden) as bar:
        for name in todo:
            path = config.root / name
            state = _state(path)
            reports[name] = check_file(name, path, workers, bar)
            if records:
                records.mkdir(parents=True, exist_ok=True)
                write_json(_record(records, path), {"state": state, "report": asdict(reports[name])})
    for name in config.files():
        problems += reports[name].problems if name in reports else []
    problems += [
        f"{first} has {reports[first].lines} lines and {second} has {reports[second].lines}: "
        "bitext needs as many on both sides"
        for first, second in _bitext(config, reports)
        if reports[first].lines != reports[second].lines and reports[first].lines and reports[second].lines
    ]
    raise_problems(problems)
    return reports


def raise_problems(problems: list[str]) -> None:
    """Raises UserError with a list of the problems, if there are any."""
    if problems:
        listed = "".join(f"\n  - {problem[:LONGEST_PROBLEM]}" for problem in problems[:MOST_PROBLEMS])
        listed += f"\n  and {len(problems) - MOST_PROBLEMS} more" if len(problems) > MOST_PROBLEMS else ""
        raise UserError(f"{len(problems)} problem(s) in the description and its files:{listed}")


def _record(records: Path, path: Path) -> Path:
    return records / f"{key_of(str(path))[:32]}.json"


def _state(path: Path) -> list[int]:
    stat = path.stat()
    return [FORMATS["data folder"], stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]


def _bitext(config: Config, reports: dict[str, Report]) -> Iterator[tuple[str, str]]:
    """Yields the pairs of files of bitext that could both be read."""
    for folder in config.folders:
        for split in folder.splits:
            if len(split.sides) == 2:
                for pair in zip(split.sides[0].files, split.sides[1].files):
                    if all(name in reports for name in pair):
                        yield pair


def tell(config: Config, reports: dict[str, Report]) -> None:
    """Logs the shares of empty, over-long and repeated lines, and bitext lines that are blank on one side only."""
    for name, report in reports.items():
        sentences = max(1, report.lines - report.blank)
        logger.info(
            "%s: %d lines, %.1f %% empty, %d documents, %.2f %% over-long, about %.1f %% duplicates",
            name,
            report.lines,
            100 * report.blank / report.lines,
            report.documents,
            100 * report.over_long / sentences,
            100 * report.duplicates / sentences,
        )
        if report.over_long:
            logger.warning(
                "%s: %d line(s) of more than %d words or %d characters, first line %d; training cuts or leaves out "
                "what is too long for it",
                name,
                report.over_long,
                LONG_TOKENS,
                LONG_CHARACTERS,
                report.first_over_long,
            )
    for first, second in _bitext(config, reports):
        if reports[first].blank_lines != reports[second].blank_lines:
            sides = zip(*(texts_in(config.root / name) for name in (first, second)))
            logger.warning(
                "%s and %s: lines that are empty on one side only, first line %d: training and validation leave out "
                "these pairs, test sets keep them; an empty line should end a document on both sides",
                first,
                second,
                next(line_number for line_number, (a, b) in enumerate(sides, start=1) if bool(a) != bool(b)),
            )
    _warn_of_languages(config, reports)


def _warn_of_languages(config: Config, reports: dict[str, Report]) -> None:
    """Warns of files in another language than the declared one, exchanged sides, and copies between languages."""
    codes = {name: side.language for _, _, side in config.sides() for name in side.files}
    mismatches = other_languages({name: (code, reports[name].languages) for name, code in codes.items()})
    warnings = {
        name: f"{name} {describe_sample(languages := reports[name].languages, actual)} instead of {codes[name]}, first "
        f"line {languages[actual][1]}"
        for name, (actual, _) in mismatches.items()
    }
    for first, second in _bitext(config, reports):
        if first in warnings and mismatches[first] == mismatches.get(second, ())[::-1]:
            logger.warning("the sides look exchanged: %s, %s", warnings.pop(first), warnings.pop(second))
    for sentence in warnings.values():
        logger.warning("%s", sentence)
    copies = {}
    for name, code in codes.items():
        original, original_code = copies.setdefault(reports[name].sha256, (name, code))
        if original_code != code and mismatches.keys().isdisjoint((name, original)):
            logger.warning("%s, text in %s, is a copy of %s, text in %s", name, code, original, original_code)
