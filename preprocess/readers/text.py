"""Text as readers compare and write it."""

import re
import unicodedata

INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff]")
# between Chinese or Japanese characters a line end is the editor's, and no blank was meant
_WIDE = "\u3000-\u30ff\u3400-\u9fff\uff00-\uffef"
WRAPPED = re.compile(rf"(?<=[{_WIDE}])[ \t]*\n\s*(?=[{_WIDE}])")
# a blank that only separated two tags; before ; : ! ? a blank is French
LOOSE_STOP = re.compile(r"(?<=\w) ([.,)])(?=\s|$)")


def one_line(text: str) -> str:
    """Text of a page as one line: every run of white space a blank, invisible characters left out."""
    text = WRAPPED.sub("", INVISIBLE.sub("", text))
    return LOOSE_STOP.sub(r"\1", " ".join(text.split()))


def letters_and_digits(text: str) -> str:
    """What two texts are compared by: letters and digits in lower case, width and compatibility forms folded."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text).casefold()))


def has_letter(text: str) -> bool:
    """Whether there is any letter, of any script."""
    return any(map(str.isalpha, text))
