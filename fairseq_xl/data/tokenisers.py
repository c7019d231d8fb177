"""The tokenisers that a data folder's manifest names: applied to raw text, and undone in what a model writes.

`python -m preprocess` applied the same ones to the text (X3). It imports nothing of this package, and this package
nothing of it, so the three calls stand in both; a test holds them equal.
"""

import functools
import logging
import re
from pathlib import Path

from fairseq_xl.data.dictionary import LANGUAGE
from fairseq_xl.data.manifest import read_manifest
from fairseq_xl.errors import UserError, quoted

PACKAGES = {"moses": "sacremoses", "jieba": "jieba", "pythainlp": "pythainlp"}  # name of a tokeniser -> its package

_PUNCTUATION = "\u3000-\u303f\uff00-\uff65"  # wide: no blank stands beside it
_UNSEGMENTED = f"{_PUNCTUATION}\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff"
_NEEDLESS = re.compile(f"(?<=[{_PUNCTUATION}]) +| +(?=[{_PUNCTUATION}])|(?<=[{_UNSEGMENTED}]) +(?=[{_UNSEGMENTED}])")


def named_in(folder):
    """The manifest's tokenisers, {language: name}; `UserError` for one that isn't there or lacks its package."""
    chosen = read_manifest(folder).get("config", {}).get("tokeniser", {})
    path = Path(folder) / "manifest.json"
    if not isinstance(chosen, dict) or not all(isinstance(name, str) for name in chosen.values()):
        raise UserError(f"{path} is damaged: 'tokeniser' must map languages to names, found {quoted(chosen)}")
    for language, name in chosen.items():
        if not LANGUAGE.fullmatch(language):  # the package would open a file of this name
            raise UserError(f"{path} is damaged: {quoted(language)} is not a language code")
        try:
            _splitter(name, language)
        except (ImportError, KeyError) as error:
            needed = f"the package {PACKAGES[name]}" if isinstance(error, ImportError) else "another version of this"
            told = f"the text of {language} was tokenised by {name}, which needs {needed}"
            raise UserError(f"{path}: {told}") from None
    return chosen


def tokenise(line, name, language):
    """A raw line -> its tokens with blanks between them; as it is where `name` is None or it has no tokens."""
    if name is None:
        return line
    return " ".join(token for part in _splitter(name, language)(line) for token in part.split()) or line


def detokenise(line, name, language):
    """Tokens with blanks between them -> text: Moses' rules, or no blanks between Chinese, Japanese or Thai words."""
    if name is None:
        return line
    if name == "moses":
        from sacremoses import MosesDetokenizer

        return MosesDetokenizer(lang=language).detokenize(line.split(), unescape=False)
    return _NEEDLESS.sub("", line)


@functools.cache
def _splitter(name, language):
    if name == "moses":  # nothing is escaped; English abbreviations where Moses has none of the language
        from sacremoses import MosesTokenizer

        return functools.partial(MosesTokenizer(lang=language).tokenize, escape=False)
    if name == "jieba":
        import jieba

        jieba.setLogLevel(logging.WARNING)  # it tells of its dictionary at every start
        return jieba.lcut
    if name == "pythainlp":
        from pythainlp.tokenize import word_tokenize

        return functools.partial(word_tokenize, engine="newmm", keep_whitespace=False)
    raise KeyError(name)
