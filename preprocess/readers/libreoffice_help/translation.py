"""Tests whether a paragraph translates the English paragraph with its id."""

import re
import unicodedata

from preprocess.readers.libreoffice_help.languages import Language

COPIED = 0.8  # share of words of the English paragraph from which on a paragraph is English with other names,
ENOUGH = 5  # if the English one has this many words; shorter ones often consist of names
WORD = re.compile(r"\w+")
GROUPING = re.compile(r"(?<=\d)[.,\s'\u2019](?=\d)")  # 1,000 and 1.000
NUMBER = re.compile(r"\d{2,}")  # a single digit is often a word in another language
LEADING = re.compile(r"(\d+) ")


def is_translated(text: str, english: str, language: Language) -> bool:
    """Tells whether a paragraph is translated; parts of every language's help are still English."""
    if text == english:
        return False
    words, originals = WORD.findall(text.casefold()), set(WORD.findall(english.casefold()))
    if len(originals) >= ENOUGH and sum(word in originals for word in words) >= COPIED * len(words):
        return False
    return not language.scripts or any(
        unicodedata.name(letter, "").startswith(language.scripts) for letter in text if letter.isalpha()
    )


def has_other_numbers(text: str, english: str) -> bool:
    """Tells whether both paragraphs have numbers and none in common, as texts of error lists with a neighbor's id."""
    leading, english_leading = LEADING.match(text), LEADING.match(english)
    if leading and english_leading and int(leading[1]) != int(english_leading[1]):
        return True
    numbers, english_numbers = _numerals(text), _numerals(english)
    return bool(numbers and english_numbers) and not numbers & english_numbers


def _numerals(text: str) -> set[int]:
    """Returns the numbers in a text, as written and without separators of thousands."""
    return {int(numeral) for variant in (text, GROUPING.sub("", text)) for numeral in NUMBER.findall(variant)}
