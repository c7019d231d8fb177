"""Optional tokenisers before the sub-words (X3): Moses, a Chinese and a Thai segmenter. Raw text is the default.

Each needs a package of its own, which is imported only when a description names the tokeniser.
"""

import functools
import importlib
import importlib.metadata
import logging
from collections.abc import Callable

PACKAGES = {"moses": "sacremoses", "jieba": "jieba", "pythainlp": "pythainlp"}  # name of a tokeniser -> its package


def problems(chosen: dict[str, str]) -> list[str]:
    """Packages that tokenisers need and that aren't installed, a sentence each; `chosen` is language -> tokeniser."""
    missing = {}
    for language, name in chosen.items():
        try:
            importlib.import_module(PACKAGES[name])
        except ImportError:
            missing.setdefault(name, []).append(language)
    return [f"tokeniser {', '.join(languages)}: {name} needs a package that is not installed: pip install "
            f"{PACKAGES[name]}" for name, languages in missing.items()]


def versions(chosen: dict[str, str]) -> dict[str, str]:
    """Versions of the packages of the tokenisers that are used."""
    return {package: importlib.metadata.version(package)
            for package in sorted({PACKAGES[name] for name in chosen.values()})}


@functools.cache
def load(name: str, language: str) -> Callable[[str], str]:
    """A function from a line to its tokens with blanks between them; a line without tokens stays as it is."""
    split = {"moses": _moses, "jieba": _jieba, "pythainlp": _pythainlp}[name](language)

    def tokenise(line: str) -> str:
        return " ".join(token for part in split(line) for token in part.split()) or line

    return tokenise


def _moses(language: str) -> Callable[[str], list[str]]:
    """Moses' rules, with the abbreviations of English for a language that it has none of; nothing is escaped."""
    from sacremoses import MosesTokenizer

    return functools.partial(MosesTokenizer(lang=language).tokenize, escape=False)


def _jieba(_: str) -> Callable[[str], list[str]]:
    import jieba

    jieba.setLogLevel(logging.WARNING)  # it tells of its dictionary at every start
    return jieba.lcut


def _pythainlp(_: str) -> Callable[[str], list[str]]:
    from pythainlp.tokenize import word_tokenize

    return functools.partial(word_tokenize, engine="newmm", keep_whitespace=False)
