"""Lines of aligned files."""

from collections.abc import Iterable, Iterator
from itertools import zip_longest

from fairseq_xl.errors import UserError
from fairseq_xl.io.text import text_of_line


class Pairs:
    """Tuples of lines of aligned streams, such as pairs of two, with one space for each run of white space.

    Only b"\\n" ends a line: published files have other line ends (U+0085, U+2028) inside lines. Pairs with an empty
    side, which would end a document, and pairs with a line that is not UTF-8 are counted and left out.

    Args:
        name: name of the pairs in messages.
        sides: lines of each side.
        keep_empty: whether pairs with an empty side are yielded, as in a test set, whose lines are numbered.
    """

    def __init__(self, name: str, *sides: Iterable[bytes], keep_empty: bool = False):
        self.name, self.sides, self.keep_empty = name, sides, keep_empty
        self.counts = {"pairs": 0, "empty": 0, "invalid": 0}

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        """Yields the pairs; raises UserError if one side has more lines than the other."""
        for line_number, lines in enumerate(zip_longest(*self.sides), start=1):
            if None in lines:
                raise UserError(f"{self.name}: one side ends at line {line_number - 1}, the other one has more lines")
            try:
                texts = tuple(text_of_line(line.decode("utf-8")) for line in lines)
            except UnicodeDecodeError:
                self.counts["invalid"] += 1
                continue
            full = all(texts)
            self.counts["pairs" if full else "empty"] += 1
            if full or self.keep_empty:
                yield texts
