"""XLM's text before its sub-words: punctuation, Moses' tokenizer or a segmenter, lower case without accents.

The steps are those of XLM's release (Lample & Conneau 2019, section 5.2): punctuation as Moses' scripts replace and
normalize it, spaces for control characters, then words (`moses.py`; KyTea's for Japanese). The release segments Chinese
with Stanford's segmenter, which this module replaces by jieba.
"""

import functools
import logging
import os
import re
import unicodedata
from collections.abc import Callable

from fairseq_xl.errors import UserError

UNSPACED = ("zh", "ja", "th")  # languages with a segmenter of their own
SEGMENTERS = {"zh": "jieba", "ja": "kytea", "th": "pythainlp"}  # language -> the package of its segmenter
#: places of KyTea's model, which its package lacks: those of KyTea's programs, and that of transformers
KYTEA_MODELS = ("/usr/local/share/kytea/model.bin", "/usr/share/kytea/model.bin", "~/local/share/kytea/model.bin")

# wide and typographic characters and what Moses' replace-unicode-punctuation puts in their place
_WIDE = "，、”“《》「」∶：？！（）；～’━〈〉【】％" + "".join(map(chr, range(0xFF10, 0xFF1A)))  # the wide digits
_NARROW = ',,"' + '"' * 5 + "::?!();~'-<>[]%0123456789"
_REPLACED = str.maketrans(dict(zip(_WIDE, _NARROW, strict=True)) | {"…": "..."})
_FULL_STOP = re.compile(r"[。．]\s*")


def splitter(language: str) -> Callable[[str], list[str]]:
    """The function from a line of a language to its words, which may have spaces around them.

    Raises `ImportError` if a package is missing, `UserError` for Japanese without KyTea's model.
    """
    from fairseq_xl.data.vocabulary import moses

    normalize = moses.normalizer(language)
    if language == "zh":
        jieba_cut = segmenter("jieba")
        return lambda line: _normalized(" ".join(jieba_cut(line)), normalize).split()
    split = segmenter(SEGMENTERS[language]) if language in SEGMENTERS else moses.splitter(language)
    return lambda line: split(_normalized(line, normalize))


def segmenter(package: str) -> Callable[[str], list[str]]:
    """The function from a line of Chinese (jieba), Thai (pythainlp) or Japanese (kytea) to its words.

    Raises `ImportError`, and `UserError` without KyTea's model.
    """
    if package == "kytea":
        import Mykytea

        model = next(filter(os.path.isfile, map(os.path.expanduser, KYTEA_MODELS)), None)
        if not model:
            raise UserError(
                f"XLM's text of ja needs KyTea's model as {', '.join(KYTEA_MODELS)}; or segment the text "
                "with KyTea, and give tokenizer: {ja: segmented}"
            )
        return Mykytea.Mykytea(f"-model {model}").getWS
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
