r"""The text of a line, the same wherever text is encoded or compared. Imports neither torch nor fairseq.

- Bytes are UTF-8. b"\n" or b"\r\n" ends a line, and nothing else does.
- A byte-order mark, U+FEFF, at the beginning of a line is left out: it began the file, or one of several joined ones.
- A run of white space is one space, and a line has none at its ends.
- A word of invisible characters alone is left out; in other words they stay, since some scripts need them.
"""

import functools
import io
import re
import sys
from typing import Any
from unicodedata import normalize

from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io import bounds

#: Characters that show nothing, as ranges of a regular expression: control characters other than white space, format
#: characters (category Cf) except the marks that enclose Arabic, Syriac and Kaithi numbers, and, of other categories,
#: the combining grapheme joiner, variation selectors, and fillers of Hangul and Khmer.
INVISIBLE = (
    "\0-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
#: characters at which `str.split` divides, as ranges of a regular expression
SPACES = "\t-\r\x1c- \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
BYTE_ORDER_MARK = "\ufeff"

# a word of invisible characters alone; it begins with the set, since a search for a set is twice as fast as one for a
# lookbehind
_INVISIBLE_WORD = re.compile(rf"[{INVISIBLE}](?<!\S[{INVISIBLE}])[{INVISIBLE}]*(?!\S)")
_VISIBLE = re.compile(rf"[^\s{INVISIBLE}]")
_MARKS = re.compile(f"^{BYTE_ORDER_MARK}+", re.MULTILINE)  # only "\n" ends a line of a regular expression


def text_of_line(line: str) -> str:
    """The text of a raw line: its words, separated by one space; empty for a line without visible characters."""
    return " ".join(_INVISIBLE_WORD.sub("", line.lstrip(BYTE_ORDER_MARK)).split())


def is_blank(line: str) -> bool:
    """Whether a line has no visible character: its text is empty."""
    return _VISIBLE.search(line) is None


def placed_text(line: str) -> tuple[str, list[int]]:
    """The text of a raw line, and the position in the line of each of its characters."""
    text, positions, end = text_of_line(line), [], 0
    for word in text.split(" ") if text else ():
        if positions:
            positions.append(end)  # of the space: the character after the word
        begin = line.index(word, end)
        end = begin + len(word)
        positions.extend(range(begin, end))
    return text, positions


def texts_of(block: bytes, errors: str = "strict") -> list[str]:
    """The texts of the lines of a block of whole lines; raises `UnicodeDecodeError`."""
    content = without_marks(block.decode("utf-8", errors).removesuffix("\n"))
    import numpy as np  # only here: every command imports this module to start

    # numpy finds invisible characters several times as fast as a regular expression
    if _invisible_codes()[np.frombuffer(content.encode("utf-32-le"), np.uint32)].any():
        content = _INVISIBLE_WORD.sub("", content)
    return [" ".join(line.split()) for line in content.split("\n")]


def check_growth(lines: list[str]) -> None:
    """Raises `UserError` for lines above `bounds.LONGEST_LINE` after normalization: it makes 18 letters of U+FDFA."""
    for line in lines:
        if len(line) > bounds.LONGEST_LINE // 18 and len(normalize("NFKC", line)) > bounds.LONGEST_LINE:
            raise UserError(
                f"a line of more than {bounds.LONGEST_LINE >> 20} MiB after normalization: is it text? It begins with "
                f"{quoted(line[:40])}"
            )


@functools.cache
def _invisible_codes() -> Any:
    """Whether a character is invisible, by its code, (codes,) bool."""
    import numpy as np

    codes = np.zeros(sys.maxunicode + 1, bool)
    for first, last in re.findall("(.)(?:-(.))?", INVISIBLE, re.DOTALL):
        codes[ord(first) : ord(last or first) + 1] = True
    return codes


def decoded(content: bytes, name: object, first: int = 1) -> str:
    """The text of a file's bytes from line `first` on, without byte-order mark; `UserError` if it is not UTF-8."""
    try:
        return content.decode("utf-8-sig" if first == 1 else "utf-8")
    except UnicodeDecodeError as error:
        line = first + content.count(b"\n", 0, error.start)
        raise UserError(f"{name}, line {line}: not UTF-8, it has the byte 0x{content[error.start]:02x}") from None


def lines_in(content: bytes, name: object, first: int = 1) -> list[str]:
    """The raw lines of a file from line `first` on, without ends and byte-order marks; `UserError` as `decoded`."""
    text = without_marks(decoded(content, name, first).removesuffix("\n"))
    return [line.removesuffix("\r") for line in text.split("\n")] if content else []


def without_marks(content: str) -> str:
    """Raw lines without the byte-order marks at their beginnings."""
    return _MARKS.sub("", content) if BYTE_ORDER_MARK in content else content


def use_utf8() -> None:
    """Makes standard input, output and errors UTF-8, whatever the locale. Commands call this; importing does not."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() != "utf-8":
            stream.reconfigure(encoding="utf-8", errors=stream.errors)
