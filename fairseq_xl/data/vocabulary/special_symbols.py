"""The special symbols of every dictionary, languages and directions. Imports neither torch nor fairseq."""

import re
from collections.abc import Iterable
from typing import Any

from fairseq_xl.errors import UserError

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")  # in this order, the first symbols of every dictionary
MASK = "<mask>"
PADDING = "madeupword"  # prefix of the symbols with which fairseq-preprocess pads a dictionary to a multiple of 8
WORD_START = "\u2581"  # SentencePiece's mark in front of the first piece of a word
PUBLISHED_LANGUAGE = re.compile(r"\w[\w-]*")  # a code in published models; codes that users give have no hyphen
LANGUAGE_SYMBOL = re.compile(rf"\[({PUBLISHED_LANGUAGE.pattern})\]")


def language_symbols(languages: Iterable[str]) -> list[str]:
    """``[xx]`` for every language."""
    return [f"[{language}]" for language in languages]


def check_direction(trained: Iterable[str], source: str, target: str, origin: Any) -> bool:
    """Whether a model was trained in the direction from `source` to `target`; if not, the direction is zero-shot.

    `trained` are its training directions, such as en-de, and `origin` is its file, for messages. Raises `UserError`
    unless `source` is that of a training direction, and `target` that of one (Johnson et al. 2017).
    """
    trained = list(trained)
    is_source = any(pair.startswith(f"{source}-") for pair in trained)
    if not is_source or not any(pair.endswith(f"-{target}") for pair in trained):
        untrained = f"to {target}" if is_source else f"from {source}"
        raise UserError(
            f"{origin} was trained for {', '.join(trained)}, not for {source}-{target}: no direction is {untrained}"
        )
    return f"{source}-{target}" in trained
