"""XLM's text before its sub-words: punctuation, Moses' tokenizer or a segmenter, lower case without accents.

The steps are those of XLM's release (Lample & Conneau 2019, section 5.2): punctuation as Moses' scripts replace and
normalize it, spaces for control characters, then words (`moses.py`). The release segments Chinese with
Stanford's segmenter, which this module replaces by jieba, and Japanese with KyTea, which it does not have.
"""

import functools
import logging
import re
import unicodedata
from collections.abc import Callable

from fairseq_xl.errors import UserError

UNSPACED = ("zh", "ja", "th")  # languages with a segmenter of their own
NO_JAPANESE = (
    "XLM's release segments Japanese with KyTea, which is not available here: segment the text with it, and give "
    "tokenizer: {ja: segmented}"
)
SEGMENTERS = {"zh": "jieba", "th": "pythainlp"}  # language -> the package of its segmenter

# wide and typographic characters and what Moses' replace-unicode-punctuation puts in their place
_WIDE = "，、”“《》「」∶：？！（）；～’━〈〉【】％" + "".join(map(chr, range(0xFF10, 0xFF1A)))  # the wide digits
_NARROW = ',,"' + '"' * 5 + "::?!();~'-<>[]%0123456789"
_REPLACED = str.maketrans(dict(zip(_WIDE, _NARROW, strict=True)) | {"…": "..."})
_FULL_STOP = re.compile(r"[。．]\s*")


def splitter(language: str) -> Callable[[str], list[str]]:
    """The function from a line of a language to its words, which may have spaces around them.

    Raises `UserError` for Japanese, `ImportError` if a package is missing.
    """
    if language == "ja":
        raise UserError(NO_JAPANESE)
    from fairseq_xl.data.vocabulary import moses

    normalize = moses.normalizer(language)
    if language == "zh":
        jieba_cut = segmenter("jieba")
        return lambda line: _normalized(" ".join(jieba_cut(line)), normalize).split()
    split = segmenter("pythainlp") if language == "th" else moses.splitter(language)
    return lambda line: split(_normalized(line, normalize))


def segmenter(package: str) -> Callable[[str], list[str]]:
    """The function from a line of Chinese (jieba) or Thai (pythainlp) to its words; raises `ImportError`."""
    if package == "jieba":
        import jieba

        jieba.setLogLevel(logging.WARNING)  # it logs the loading of its dictionary at every start
        return jieba.lcut
    from pythainlp.tokenize import word_tokenize

    return functools.partial(word_tokenize, engine="newmm", keep_whitespace=False)


def _normalized(line: str, normalize: Callable[[str], str]) -> str:
    """A line with plain punctuation and a space for each control character."""
    line = normalize(_FULL_STOP.sub(". ", line.translate(_REPLACED)))
    return "".join(" " if unicodedata.category(char)[0] == "C" else char for char in line)


def without_accents(text: str) -> str:
    """Text in lower case and without accents: decomposed, without nonspacing marks."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFD", text.lower())
    return "".join(char for char in decomposed if unicodedata.category(char) != "Mn").lower()


def places_without_accents(text: str) -> list[int]:
    """The index in `text` of the source of each character of `without_accents(text)`."""
    return [index for index, char in enumerate(text) for _ in without_accents(char)]
