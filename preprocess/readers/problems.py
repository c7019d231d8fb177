"""Collects the problems of published files, which are all shown before anything is written."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fairseq_xl.errors import LISTED, UserError, listed, quoted
from fairseq_xl.io.compressed import lines_of, text_of
from fairseq_xl.io.text import without_marks


@dataclass
class Problems:
    """The number of problems, the first ones, and counts of wrong lines and answers that are left out."""

    leave_out: bool = False  # if true, wrong lines and answers are left out and counted, and are no problems
    count: int = 0
    first: list[str] = field(default_factory=list)  # at most `LISTED`
    left_out: Counter[str] = field(default_factory=Counter)  # kind -> number

    def add(self, problem: str) -> None:
        """Adds a problem of a file as a whole: a sentence that names the file."""
        self.count += 1
        if len(self.first) < LISTED:
            self.first.append(problem)

    def wrong(self, kind: str, problem: str) -> None:
        """Adds a wrong line or answer, or counts it as left out under `kind`."""
        if self.leave_out:
            self.left_out[kind] += 1
        else:
            self.add(problem)

    def label(self, path: Path, line_number: int, kind: str, label: str, valid: Mapping[str, str]) -> str | None:
        """Looks up the label of a line in `valid`; an unknown label is a problem and gives None."""
        if label not in valid:
            self.wrong(
                f"wrong {kind}", f"{path}, line {line_number}: {kind} {quoted(label)} is not one of {', '.join(valid)}"
            )
        return valid.get(label)

    def merge(self, problems: "Problems") -> None:
        """Adds the problems of another file."""
        self.count += problems.count
        self.first += problems.first[: LISTED - len(self.first)]

    def refuse(self, remedy: str = "") -> None:
        """Raises `UserError` if there are problems; `remedy` is the last line of several."""
        if self.count:
            last_line = f"\n  {remedy}" if remedy and self.count > 1 else ""
            raise UserError(listed(self.first, self.count) + last_line)


def decoded(path: Path, problems: Problems, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """Yields the number and the text of each line, without a byte-order mark; only b"\\n" ends a line.

    A line of another encoding, which is skipped, and an empty file are problems.
    """
    line_number = 0
    with open(path, "rb") as file:
        for line_number, line in enumerate(lines_of(text_of(file), str(path)), start=1):
            try:
                text = without_marks(line.decode(encoding))
            except UnicodeDecodeError:
                problems.wrong("not UTF-8", f"{path}, line {line_number}: not UTF-8")
                continue
            yield line_number, text
    if not line_number:
        problems.add(f"{path}, line 1: the file is empty")
