"""Raw text encoded on the fly, as `fairseq-xl data prepare` encodes it."""

import functools
import itertools
import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fairseq_xl.data import Numbers
from fairseq_xl.data.store.manifest import read_manifest
from fairseq_xl.data.vocabulary import tokenizers
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.data.vocabulary.subwords import FILES, Subwords, check_pieces, open_subwords, vocabulary_kind
from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io.files import SURROGATE
from fairseq_xl.io.text import placed_text, text_of_line

logger = logging.getLogger(__name__)

CACHED, CACHED_SPANS = 1 << 15, 64  # number of texts with a cached encoding


class TextEncoder:
    """Raw text -> indices of the joint dictionary, ended by ``</s>``.

    Args:
        folder: data folder with the vocabulary that the dictionary was made with; its manifest names the tokenizers of
            the languages that have one. Where it names languages that share no piece (`fairseq-xl data disjoint`),
            each has a vocabulary in a folder of its own instead.

    Raises `UserError` as `open_subwords`, `check_pieces` and `tokenizers.named_in` do.
    """

    def __init__(self, folder: str | Path, dictionary: XLDictionary):
        folder = Path(folder)
        self.tokenizers = tokenizers.named_in(folder)
        languages: Sequence[str | None] = languages_apart(folder) or [None]  # None: one vocabulary for all
        self.subwords = {language: _open(*place_of_subwords(folder, language), dictionary) for language in languages}
        self.eos, self.unk = dictionary.eos(), dictionary.unk()
        self._tokens, self._unknown, self._has_warned = 0, 0, False
        self._cached_encode = functools.lru_cache(CACHED)(self._encode)  # words, queries and premises are repeated
        self.spans = functools.lru_cache(CACHED_SPANS)(self._spans)  # a context has several questions

    def __call__(self, text: str, language: str) -> Numbers:
        """Raw text of a language -> (t,) int64, the last one ``</s>``; text without a piece is ``<unk>``.

        Text without a visible character is ``</s>`` alone (`fairseq_xl.io.text`).
        The array is read-only: equal texts share it.
        """
        return self._cached_encode(text, language)

    def _encode(self, text: str, language: str) -> Numbers:
        text = self.tokenized(text_of_line(_checked(text)), language)
        subwords, indices = self.subwords_of(language)
        (pieces,) = subwords.encode([text])
        ids = np.append(indices[pieces or [subwords.unknown] * bool(text)], self.eos)
        ids.flags.writeable = False
        self._tokens += len(ids) - 1
        self._unknown += int((ids == self.unk).sum())
        return ids

    def warn_of_unknown(self, name: str) -> None:
        """Warns once if half or more of the tokens of the different texts of the input `name` are ``<unk>``."""
        if not self._has_warned and self._tokens and 2 * self._unknown >= self._tokens:
            self._has_warned = True
            logger.warning("%s: %.0f %% of the tokens are <unk>", name, 100 * self._unknown / self._tokens)

    def tokenized(self, text: str, language: str) -> str:
        """The tokens of a line's text, separated by spaces; the text itself if its language has no tokenizer."""
        return tokenizers.tokenize(text, self.tokenizers.get(language), language)

    def subwords_of(self, language: str) -> tuple[Subwords, Numbers]:
        """The sub-words of a language, and the indices (P,) of their pieces in the dictionary."""
        return self.subwords[language if language in self.subwords else None]

    def _spans(self, text: str, language: str) -> tuple[Numbers, Numbers]:
        """Raw text of a language -> ids (t,), without ``</s>``, and the characters [begin, end) of each, (t, 2).

        The arrays are read-only: equal texts share them. Raises `UserError` if a tokenizer changes more than spaces.
        """
        name, raw = self.tokenizers.get(language), _checked(text)
        line, offsets = placed_text(raw)
        text = self.tokenized(line, language)
        subwords, indices = self.subwords_of(language)
        pieces, spans = subwords.spans(text)
        characters: Numbers = np.array(spans, dtype=np.int64).reshape(-1, 2)
        if name is not None:
            try:
                characters = in_raw(characters, text, line)
            except ValueError as error:
                raise UserError(
                    f"the tokenizer {name!r} of {language} changes characters of the text ({error}), so answers cannot "
                    "be located; use a data folder whose tokenizer changes only white space"
                ) from None
        if line != raw:
            characters = _mapped(characters, [*offsets, len(raw)])
        ids = indices[np.array(pieces, dtype=np.int64)]
        ids.flags.writeable = characters.flags.writeable = False
        return ids, characters


def _checked(text: str) -> str:
    """Returns the text; raises `UserError` for half of a surrogate pair, which no vocabulary has."""
    if not text.isascii() and SURROGATE.search(text):
        raise UserError(f"{quoted(text)} is not Unicode text: it has half of a surrogate pair")
    return text


def languages_apart(folder: Path) -> list[str]:
    """The languages of a data folder of `fairseq-xl data disjoint`, which share no piece; [] for other folders."""
    return list(read_manifest(folder).get("disjoint") or ())


def place_of_subwords(folder: Path, language: str | None) -> tuple[Path, str]:
    """The folder of a language's sub-words in a data folder, and the suffix of their pieces; None: of all languages."""
    return (folder / language, f"@{language}") if language in languages_apart(folder) else (folder, "")


def _open(folder: Path, suffix: str, dictionary: XLDictionary) -> tuple[Subwords, Numbers]:
    """Sub-words and the indices (P,) of their pieces, which end in `suffix`, in the dictionary."""
    subwords = open_subwords(folder)
    check_pieces(subwords, folder / FILES[vocabulary_kind(folder)][-1], dictionary, suffix)
    indices = np.array([dictionary.index(symbol + suffix) for symbol in subwords.symbols])
    return subwords, np.where(dictionary.is_piece[indices], indices, dictionary.unk())


def in_raw(characters: Numbers, tokenized: str, raw: str) -> Numbers:
    """Maps characters [begin, end) (t, 2) of a tokenized text to the raw text, without spaces around them.

    Both texts must have the same characters except for spaces; raises `ValueError` that names the first difference.
    """
    sources, targets = ([index for index, char in enumerate(text) if not char.isspace()] for text in (tokenized, raw))
    for source, target in itertools.zip_longest(sources, targets):
        if source is None or target is None or tokenized[source] != raw[target]:
            sides = ((raw, target), (tokenized, source))
            before, after = ("" if index is None else text[index:][:20] for text, index in sides)
            raise ValueError(f"{before!r} becomes {after!r}")
    begins, ends = np.searchsorted(sources, characters).T  # numbers of characters before, without spaces
    return _mapped(np.stack((begins, ends), axis=1), [*targets, len(raw)])


def _mapped(characters: Numbers, indices: list[int]) -> Numbers:
    """Maps characters [begin, end) (t, 2) to another text by their indices there, the last of which is its length."""
    (begins, ends), table = characters.T, np.array(indices)
    return np.stack((table[begins], np.where(ends > begins, table[ends - 1] + 1, table[begins])), axis=1)


def truncate(ended: Numbers, room: int) -> Numbers:
    """An ended sentence (t,) -> its first `room` tokens, of which the last is ``</s>`` again."""
    return ended if len(ended) <= room else np.append(ended[: room - 1], ended[-1])
