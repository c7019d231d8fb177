"""The special symbols of every dictionary. Imports neither torch nor fairseq."""

import hashlib
import re
from collections.abc import Iterable

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")  # in this order, the first symbols of every dictionary
MASK = "<mask>"
WORD_START = "\u2581"  # SentencePiece's mark in front of the first piece of a word
PUBLISHED_LANGUAGE = re.compile(r"\w[\w-]*")  # a code in published models; users name none with a hyphen
LANGUAGE_SYMBOL = re.compile(rf"\[({PUBLISHED_LANGUAGE.pattern})\]")


def language_symbols(languages: Iterable[str]) -> list[str]:
    """``[xx]`` for every language."""
    return [f"[{language}]" for language in languages]


def digest(symbols: Iterable[str]) -> str:
    """SHA-256 over symbols in order: two vocabularies agree if and only if it does."""
    return hashlib.sha256("\n".join(symbols).encode("utf-8")).hexdigest()
