"""Problems of published files: readers collect them, and all are shown before anything is written."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fairseq_xl.errors import LISTED, UserError, listed, quoted
from fairseq_xl.io.compressed import lines_of, text_of
from fairseq_xl.io.text import without_marks


@dataclass
class Problems:
    """The number of problems, the first ones, and how many wrong lines or answers were left out."""

    leave_out: bool = False  # if true, wrong lines and answers are counted, and are no problems
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

    def label(self, path: Path, number: int, kind: str, found: str, valid: Mapping[str, str]) -> str | None:
        """Looks up the label of line `number` in `valid`; an unknown label is a problem and gives None."""
        if found not in valid:
            self.wrong(
                f"wrong {kind}", f"{path}, line {number}: {kind} {quoted(found)} is not one of {', '.join(valid)}"
            )
        return valid.get(found)

    def merge(self, other: "Problems") -> None:
        """Adds the problems of another file."""
        self.count += other.count
        self.first += other.first[: LISTED - len(self.first)]

    def refuse(self, remedy: str = "") -> None:
        """Raises `UserError` if there are problems; of several, `remedy` is the last line."""
        if self.count:
            more = f"\n  {remedy}" if remedy and self.count > 1 else ""
            raise UserError(listed(self.first, self.count) + more)


def decoded(path: Path, problems: Problems, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """Yields the number and the text of each line; one of another encoding is skipped.

    Such a line and an empty file are problems. Only b"\\n" ends a line; a byte-order mark is left out.
    """
    number = 0
    with open(path, "rb") as file:
        for number, line in enumerate(lines_of(text_of(file), str(path)), start=1):
            try:
                text = without_marks(line.decode(encoding))
            except UnicodeDecodeError:
                problems.wrong("not UTF-8", f"{path}, line {number}: not UTF-8")
                continue
            yield number, text
    if not number:
        problems.add(f"{path}, line 1: the file is empty")
