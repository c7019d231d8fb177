"""Whether a paragraph is a translation of the English one with its id."""

import re
import unicodedata

from preprocess.readers.libreoffice_help.languages import Language

COPIED = 0.8  # a paragraph with this share of English words is English with a name or two replaced,
ENOUGH = 5  # where the English one has so many words; shorter ones are often names only
WORD = re.compile(r"\w+")
GROUPING = re.compile(r"(?<=\d)[.,\s'\u2019](?=\d)")  # 1,000 and 1.000
NUMBER = re.compile(r"\d{2,}")  # a single digit is often a word in another language
LEADING = re.compile(r"(\d+) ")


def is_translated(text: str, english: str, language: Language) -> bool:
    """False for English text in another language's page: parts of every language's help were never translated."""
    if text == english:
        return False
    words, originals = WORD.findall(text.casefold()), set(WORD.findall(english.casefold()))
    if len(originals) >= ENOUGH and sum(word in originals for word in words) >= COPIED * len(words):
        return False
    return not language.scripts or any(
        unicodedata.name(letter, "").startswith(language.scripts) for letter in text if letter.isalpha()
    )


def has_other_numbers(text: str, english: str) -> bool:
    """True where both have numbers and none in common: text that slid to a neighbour's id, in lists of error codes."""
    ours, theirs = LEADING.match(text), LEADING.match(english)
    if ours and theirs and int(ours[1]) != int(theirs[1]):
        return True
    left, right = _numbers(text), _numbers(english)
    return bool(left and right) and not left & right


def _numbers(text: str) -> set[int]:
    """Numbers as they stand, and without the marks that group their digits."""
    return {int(number) for form in (text, GROUPING.sub("", text)) for number in NUMBER.findall(form)}
