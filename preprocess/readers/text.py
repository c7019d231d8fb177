"""Normalizes text for comparison and for output."""

import re
import unicodedata

INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff]")
# a line end between Chinese or Japanese characters comes from an editor and means no space
WIDE = "\u3000-\u30ff\u3400-\u9fff\uff00-\uffef"
WRAPPED = re.compile(rf"(?<=[{WIDE}])[ \t]*\n\s*(?=[{WIDE}])")
# a space between two tags; before ; : ! ? French has spaces
LOOSE_STOP = re.compile(r"(?<=\w) ([.,)])(?=\s|$)")


def one_line(text: str) -> str:
    """Joins text to one line, with one space for each run of white space and without invisible characters."""
    text = WRAPPED.sub("", INVISIBLE.sub("", text))
    return LOOSE_STOP.sub(r"\1", " ".join(text.split()))


def letters_and_digits(text: str) -> str:
    """Returns the letters and digits of a text for comparison, in lower case, with compatibility forms folded."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text).casefold()))


def has_letter(text: str) -> bool:
    """Tells whether a text has a letter of any script."""
    return any(map(str.isalpha, text))
