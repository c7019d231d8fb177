"""Two files of aligned lines, as they are published."""

from collections.abc import Iterable, Iterator
from itertools import zip_longest

from fairseq_xl.errors import UserError


class Pairs:
    """Pairs of lines of two streams, white space folded to blanks; what can't be used is counted and left out.

    Only b"\\n" ends a line: published files hold other line ends (U+0085, U+2028) within lines. An empty line would
    end a document and a pair with one would end it on one side, so pairs with an empty side are left out, and lines
    that aren't UTF-8.
    """

    def __init__(self, name: str, first: Iterable[bytes], second: Iterable[bytes]):
        self.name, self.sides = name, (first, second)
        self.counts = {"pairs": 0, "empty": 0, "invalid": 0}

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Raises UserError when one side has more lines than the other."""
        for number, lines in enumerate(zip_longest(*self.sides), start=1):
            if None in lines:
                raise UserError(f"{self.name}: one side ends at line {number - 1}, the other one goes on")
            try:
                texts = tuple(" ".join(line.decode("utf-8").split()) for line in lines)
            except UnicodeDecodeError:
                self.counts["invalid"] += 1
                continue
            if all(texts):
                self.counts["pairs"] += 1
                yield texts[0], texts[1]
            else:
                self.counts["empty"] += 1
