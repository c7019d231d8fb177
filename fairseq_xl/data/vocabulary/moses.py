"""Words as Moses' tokenizer.perl makes them, and punctuation as its normalize-punctuation.perl does.

The rules are those of the Perl scripts, also where they surprise: a mark that is not alphabetic, such as a virama, is
a word; a full stop at the end of a line is always split off. sacremoses, of which this module takes abbreviations and
substitutions, differs in both. The words DOTMULTI and DOTDOTMULTI, which the script turns into dots, stay.
"""

import re
from collections.abc import Callable

import regex

#: language -> a mark inside of words, split off where no lower-case letter follows
INSIDE = {"fi": ":", "sv": ":", "tdt": "'", "ca": "\xb7"}
NEVER_SPLIT = ("ca",)  # as in the script, though it intends to split here
SPLIT_RIGHT, SPLIT_LEFT, GLOTTAL = ("en",), ("fr", "it", "ga", "ca"), ("so", "tdt")  # contractions: it 's, l' eau
DOT = "\x01"  # stands for a dot of several in a row; the text has no control characters

_SPACE = re.compile(r"[^\S\x1c-\x1f]+")
_JUNK = re.compile(r"[\0-\x1f]")
_DOTS = re.compile(r"\.{2,}")
_COMMA_AFTER = regex.compile(r"([^\p{N}]),")
_COMMA_BEFORE = regex.compile(r",([^\p{N}])")
_LAST_COMMA = regex.compile(r"(?<=\p{N}),$")
_LOWER = regex.compile(r"\p{Lowercase}")
_ALPHA = regex.compile(r"\p{Alphabetic}")
_DIGIT = re.compile("[0-9]")
_LAST_QUOTE = re.compile(r"\.' ?$")


def splitter(language: str) -> Callable[[str], list[str]]:
    """Returns the function from a line to its words; a language without abbreviations has the English ones."""
    from sacremoses import corpus

    items = (item.partition("#NUMERIC_ONLY#") for item in corpus.NonbreakingPrefixes().words(language))
    # abbreviation without its full stop -> whether it is one before numbers only
    prefixes = {word.strip(): bool(mark) for word, mark, _ in items}
    inside = INSIDE.get(language, "")
    marks = regex.compile(rf"[^\p{{Alphabetic}}\p{{Nd}} .'`,\-{inside}]")
    outside = regex.compile(rf"{inside}(?!\p{{Ll}})") if inside and language not in NEVER_SPLIT else None
    apostrophes = _apostrophes(language)

    def split(line: str) -> list[str]:
        """Splits a line into words; control characters are removed."""
        text = _SPACE.sub(" ", line)
        if _JUNK.search(text):
            text = _SPACE.sub(" ", _JUNK.sub("", text))
        text = marks.sub(r" \g<0> ", text.strip(" "))
        if outside:
            text = outside.sub(f" {inside} ", text)
        text = _DOTS.sub(lambda dots: f" {DOT * len(dots[0])} ", text)
        if "," in text:
            text = _COMMA_BEFORE.sub(r" , \1", _COMMA_AFTER.sub(r"\1 , ", text))
            text = _LAST_COMMA.sub(" ,", text)
        if "'" in text:
            for pattern, replacement in apostrophes:
                text = pattern.sub(replacement, text)
        words = text.rstrip(" ").split(" ")
        text = " ".join(_without_full_stops(words, prefixes))
        if "'" in text[-2:]:
            text = _LAST_QUOTE.sub(" . ' ", text.rstrip(" "))
        return text.replace(DOT, ".").split()

    return split


def _apostrophes(language: str) -> list[tuple[regex.Pattern[str], str]]:
    """The substitutions, in order, that split off apostrophes."""
    letter, non_letter = r"(\p{Alphabetic})", r"([^\p{Alphabetic}])"
    rules = [(f"{non_letter}'{non_letter}", r"\1 ' \2")]
    if language in SPLIT_RIGHT:
        rules += [(rf"([^\p{{Alphabetic}}\p{{N}}])'{letter}", r"\1 ' \2"), (f"{letter}'{non_letter}", r"\1 ' \2")]
        rules += [(f"{letter}'{letter}", r"\1 '\2"), (r"(\p{N})'(s)", r"\1 '\2")]
    elif language in SPLIT_LEFT + GLOTTAL:
        rules += [(f"{non_letter}'{letter}", r"\1 ' \2"), (f"{letter}'{non_letter}", r"\1 ' \2")]
        rules += [(f"{letter}'{letter}", r"\1' \2")] if language in SPLIT_LEFT else []
    else:
        rules = [("'", " ' ")]
    return [(regex.compile(pattern), replacement) for pattern, replacement in rules]


def _without_full_stops(words: list[str], prefixes: dict[str, bool]) -> list[str]:
    """Words with the full stop split off, except at abbreviations and before a word in lower case."""
    last = len(words) - 1
    for index, word in enumerate(words):
        if word[-1:] != "." or word == ".":
            continue
        prefix, after = word[:-1], words[index + 1] if index < last else ""
        abbreviation = ("." in prefix and _ALPHA.search(prefix)) or _LOWER.match(after)
        if prefix in prefixes:
            abbreviation = abbreviation or not prefixes[prefix] or _DIGIT.match(after)
        if index == last or not abbreviation:
            words[index] = f"{prefix} ."
    return words


def normalizer(language: str) -> Callable[[str], str]:
    """Returns the function from a line of a language to the line with normalized punctuation."""
    from sacremoses import MosesPunctNormalizer

    rules = MosesPunctNormalizer(language, norm_quote_commas=language == "en", norm_numbers=False, perl_parity=True)
    steps = [*rules.substitutions]
    if language not in ("en", "cs", "cz"):
        steps += rules.DE_ES_FR_QUOTATION_FOLLOWED_BY_COMMA
    steps += rules.DE_ES_CZ_CS_FR if language in ("de", "es", "cz", "cs", "fr") else rules.OTHER
    substitutions = [(re.compile(pattern, re.ASCII), replacement) for pattern, replacement in steps]

    def normalize(line: str) -> str:
        line += "\n"  # as in the script, for which a line end is a character after a quotation mark
        for pattern, replacement in substitutions:
            line = pattern.sub(replacement, line)
        return line.strip()

    return normalize
