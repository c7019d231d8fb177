"""Tests whether a paragraph translates the English paragraph with its id."""

import re
import unicodedata

from preprocess.readers.libreoffice_help.languages import Language

COPIED = 0.8  # a paragraph with this share of words of the English one is English with a few names replaced,
ENOUGH = 5  # if the English one has this many words; shorter ones often consist of names
WORD = re.compile(r"\w+")
GROUPING = re.compile(r"(?<=\d)[.,\s'\u2019](?=\d)")  # 1,000 and 1.000
NUMBER = re.compile(r"\d{2,}")  # a single digit is often a word in another language
LEADING = re.compile(r"(\d+) ")


def is_translated(text: str, english: str, language: Language) -> bool:
    """Whether a paragraph is translated: parts of every language's help are still English."""
    if text == english:
        return False
    words, originals = WORD.findall(text.casefold()), set(WORD.findall(english.casefold()))
    if len(originals) >= ENOUGH and sum(word in originals for word in words) >= COPIED * len(words):
        return False
    return not language.scripts or any(
        unicodedata.name(letter, "").startswith(language.scripts) for letter in text if letter.isalpha()
    )


def has_other_numbers(text: str, english: str) -> bool:
    """Whether both paragraphs have numbers and none in common: some texts of error lists have the id of a neighbor."""
    ours, theirs = LEADING.match(text), LEADING.match(english)
    if ours and theirs and int(ours[1]) != int(theirs[1]):
        return True
    left, right = _numbers(text), _numbers(english)
    return bool(left and right) and not left & right


def _numbers(text: str) -> set[int]:
    """Numbers in a text, as they are written and without separators of thousands."""
    return {int(number) for form in (text, GROUPING.sub("", text)) for number in NUMBER.findall(form)}
