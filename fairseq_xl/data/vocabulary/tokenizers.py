"""Optional tokenizers in front of the sub-words: Moses, a Chinese and a Thai segmenter. Raw text is the default.

XLM's vocabulary needs words: `XLM` makes them as XLM's release does, `SEGMENTED` is for text that has them already.
`fairseq-xl data prepare` applies those of the description; tasks apply the same ones, which the data folder's manifest
names, to raw text, and undo them in generated text. Each needs its own package. Imports neither torch nor fairseq.
"""

import functools
import logging
import re
from collections.abc import Callable
from pathlib import Path

from fairseq_xl.data.store.manifest import manifest_tokenizers, read_manifest
from fairseq_xl.data.vocabulary import xlm_text
from fairseq_xl.errors import UserError, check_language, quoted
from fairseq_xl.io.versions import version

PACKAGES = {"moses": "sacremoses", "jieba": "jieba", "pythainlp": "pythainlp"}  # name of a tokenizer -> its package
XLM, SEGMENTED = "xlm", "segmented"  # tokenizers of text with XLM's vocabulary
JIEBA_FOR_STANFORD = (
    "Chinese text is segmented by jieba in place of Stanford's segmenter, with which XLM was trained; tokenizer: {zh: "
    "segmented} is for text that has been segmented"
)
#: entry of a manifest's versions: the number of the rules of `moses.py`
RULES = {"rules of moses": "1"}

logger = logging.getLogger(__name__)
_PUNCTUATION = "\u3000-\u303f\uff00-\uff65"  # wide: no space stands beside it
_UNSEGMENTED = f"{_PUNCTUATION}\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff"
_NEEDLESS = re.compile(f"(?<=[{_PUNCTUATION}]) +| +(?=[{_PUNCTUATION}])|(?<=[{_UNSEGMENTED}]) +(?=[{_UNSEGMENTED}])")


def named_in(folder: str | Path) -> dict[str, str]:
    """The tokenizers {language: name} of a data folder's manifest, whose packages must be installed.

    Warns of another version. Raises `UserError` for a damaged manifest, an unknown tokenizer or a missing package.
    """
    tokenizers = manifest_tokenizers(read_manifest(folder))
    path = Path(folder) / "manifest.json"
    if not isinstance(tokenizers, dict) or not all(isinstance(name, str) for name in tokenizers.values()):
        raise UserError(f"{path} is damaged: 'tokenizer' must map languages to names, found {quoted(tokenizers)}")
    for language, name in tokenizers.items():
        check_language(f"{path} is damaged", language)  # the package would open a file of this name
        try:
            _splitter(name, language)
        except (ImportError, KeyError) as error:
            absent = isinstance(error, ImportError)
            needed = f"the package {' and '.join(packages_of(name, language))}" if absent else "another version of this"
            message = f"the text of {language} was tokenized by {name}, which needs {needed}"
            raise UserError(f"{path}: {message}") from None
    for part in (folder, *(Path(folder) / code for code in read_manifest(folder).get("disjoint") or ())):
        manifest = read_manifest(part)
        if "versions" in manifest:  # not of a published model
            before, now = manifest["versions"], versions(manifest_tokenizers(manifest))
            if changes := [
                f"{name} {before.get(name)}, now {now[name]}" for name in now if before.get(name) != now[name]
            ]:
                _warn(f"{part}: its text was tokenized with {', '.join(changes)}: raw text may get other words")
        elif tokenizers.get("zh") == XLM:
            _warn(f"{part}: {JIEBA_FOR_STANFORD}")
    return tokenizers


@functools.cache
def _warn(message: str) -> None:
    """Logs a warning once."""
    logger.warning(message)


def packages_of(name: str, language: str) -> list[str]:
    """The packages that a tokenizer needs for a language."""
    if name in PACKAGES:
        return [PACKAGES[name]]
    segmenter = xlm_text.SEGMENTERS.get(language) if name == XLM else None
    return ["sacremoses", *([segmenter] if segmenter else [])]


def versions(tokenizers: dict[str, str]) -> dict[str, str | None]:
    """Versions of the packages that the tokenizers {language: name} need, and of the `RULES`."""
    needed = {package for language, name in tokenizers.items() for package in packages_of(name, language)}
    package_versions = {package: version(package) for package in sorted(needed)}
    return package_versions | (RULES if {"moses", XLM} & {*tokenizers.values()} else {})


def tokenize(line: str, name: str | None, language: str) -> str:
    """Raw line -> its tokens, separated by spaces; unchanged if `name` is None or the line has no tokens."""
    if name is None:
        return line
    return " ".join(token for part in _splitter(name, language)(line) for token in part.split()) or line


def detokenize(line: str, name: str | None, language: str) -> str:
    """Tokens, separated by spaces -> text: Moses' rules, or no spaces between Chinese, Japanese or Thai words."""
    if name is None:
        return line
    if name == "moses" or (name in (XLM, SEGMENTED) and language not in xlm_text.UNSPACED):
        from sacremoses import MosesDetokenizer

        return MosesDetokenizer(lang=language).detokenize(line.split(), unescape=False)
    return _NEEDLESS.sub("", line)


@functools.cache
def _splitter(name: str, language: str) -> Callable[[str], list[str]]:
    if name == "moses":  # nothing is escaped; English abbreviations for a language that Moses has none of
        from fairseq_xl.data.vocabulary import moses

        return moses.splitter(language)
    if name in ("jieba", "pythainlp"):
        return xlm_text.segmenter(name)
    if name == XLM:
        return xlm_text.splitter(language)
    if name == SEGMENTED:
        return str.split
    raise KeyError(name)
