"""XLM's sub-words: the codes and the vocabulary that fastBPE learns, read from its files or from transformers' ones.

A word is split into characters; the pair of neighbors that stands first in the codes is merged until no pair is in the
codes. ``@@`` behind a piece says that its word continues.
"""

import functools
import re
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, models

from fairseq_xl.data.vocabulary.special_symbols import LANGUAGE_SYMBOL, MASK, SPECIAL
from fairseq_xl.data.vocabulary.xlm_text import places_without_accents, without_accents
from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io.files import json_object, read_whole
from fairseq_xl.io.text import decoded

END, CONTINUES = "</w>", "@@"  # behind the last piece of a word in codes, behind all others in text
UNUSED = re.compile(r"<special\d+>")  # ten words of every vocabulary of XLM, of which one is the mask
UNKNOWN = " "  # the part of a character that the codes lack; no other part has a space
CACHED = 1 << 18  # number of words with cached pieces
_JSON = re.compile(r'\s*\{\s*"')

Pair = tuple[str, str]


class XLMPieces:
    """The pieces of XLM's codes (`fairseq_xl.data.vocabulary.subwords.Subwords`). Text is words separated by spaces.

    Args:
        codes: the codes of fastBPE, `left right count` on a line, or transformers' merges.txt, without counts.
        vocab: `word count` on a line, as fastBPE writes it, or transformers' vocab.json.
        lowercase_and_remove_accent: whether text gets lower case and loses accents.

    Raises `UserError` for files that are missing, damaged or of two different models.
    """

    title, units = "XLM vocabulary", "pieces"

    def __init__(self, codes: Path, vocab: Path, lowercase_and_remove_accent: bool):
        self.ranks, words = read_codes(codes), read_vocabulary(vocab)
        _check_pair(self.ranks, words, codes, vocab)
        self.lower = lowercase_and_remove_accent
        self.unknown, self.symbols = 0, ["<unk>", *words]
        self.ids = {word: index for index, word in enumerate(words, start=1)}
        self.pieces = functools.lru_cache(CACHED)(WordSplitter(self.ranks))

    def encode(self, lines: list[str]) -> list[list[int]]:
        """Lines -> the ids of their pieces."""
        return [[self.ids.get(piece, self.unknown) for piece in self._pieces(line)] for line in lines]

    def lost(self, line: str) -> list[str]:
        """The pieces of a line that the vocabulary lacks."""
        return [piece for piece in self._pieces(line) if piece not in self.ids]

    def _pieces(self, line: str) -> list[str]:
        line = without_accents(line) if self.lower else line
        return [piece for word in line.split() for piece in self.pieces(word)]

    def spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Text -> the ids of its pieces, and the characters [begin, end) of each."""
        origins = places_without_accents(text) if self.lower else range(len(text))
        ids, characters = [], []
        for word in re.finditer(r"\S+", without_accents(text) if self.lower else text):
            end = word.start()
            *inner, last = self.pieces(word[0])
            for piece, length in [(piece, len(piece) - len(CONTINUES)) for piece in inner] + [(last, len(last))]:
                begin, end = end, end + length
                ids.append(self.ids.get(piece, self.unknown))
                characters.append((origins[begin], origins[end - 1] + 1))
        return ids, characters


class WordSplitter:
    """Splits words into their pieces, as text spells them; `ranks` are the indices of pairs in the codes."""

    def __init__(self, ranks: dict[Pair, int]):
        merges = sorted(ranks, key=ranks.__getitem__)
        parts = dict.fromkeys(part for left, right in merges for part in (left, right, left + right))
        ids = {part: index for index, part in enumerate([UNKNOWN, *parts])}
        self.tokenizer = Tokenizer(models.BPE(ids, merges, unk_token=UNKNOWN, end_of_word_suffix=END))

    def __call__(self, word: str) -> list[str]:
        *inner, last = (word[begin:end] for begin, end in self.tokenizer.encode(word).offsets)
        return [*(part + CONTINUES for part in inner), last]


def spelled(part: str) -> str:
    """Respells a part of a word from the codes as in text: ``the</w>`` -> the, th -> ``th@@``."""
    return part.removesuffix(END) if part.endswith(END) else part + CONTINUES


def spelled_words(words: Iterable[str]) -> list[str]:
    """Respells the words of transformers' vocab.json as in text; special symbols stay as they are.

    An export of this package has ``<mask>`` and behind it ``[xx]`` for each language.
    """
    spellings, after_mask = [], False
    for word in words:
        after_mask = after_mask or word == MASK
        stays = is_special(word) or (after_mask and LANGUAGE_SYMBOL.fullmatch(word))
        spellings.append(word if stays else spelled(word))
    return spellings


def is_special(word: str) -> bool:
    """Whether a word of a vocabulary is a special symbol, which no text has."""
    return word in SPECIAL or word == MASK or UNUSED.fullmatch(word) is not None


def read_codes(path: Path) -> dict[Pair, int]:
    """Reads codes: {pair: line number}."""
    ranks: dict[Pair, int] = {}
    for lineno, line in enumerate(_lines(_read(path, "codes"), path), start=1):
        if lineno == 1 and line.startswith("#version"):
            continue
        parts = line.rstrip(" \r").split(" ")
        if not (len(parts) == 2 or (len(parts) == 3 and parts[2].isdigit())) or "" in parts:
            raise UserError(f"{path}, line {lineno}: expected 'left right count' or 'left right', found {quoted(line)}")
        ranks[parts[0], parts[1]] = lineno
    if not ranks:
        raise UserError(f"{path} has no codes: expected 'left right count' on every line")
    return ranks


def read_vocabulary(path: Path) -> list[str]:
    """The words of a vocabulary in order, spelled as in text, without special symbols.

    As in XLM, words with a space in them and repeated words do not count.
    """
    text = _read(path, "XLM vocabulary")
    if _JSON.match(text):
        words = read_numbered(path)
        first = words.index(MASK) if MASK in words else len(words)  # exports of this package have [xx] behind it
        words = [word for row, word in enumerate(words) if row < first or not LANGUAGE_SYMBOL.fullmatch(word)]
        words = spelled_words(words)
    else:
        words = []
        for line_number, line in enumerate(_lines(text, path), start=1):
            word, _, count = line.rstrip("\r").rpartition(" ")
            if not count.isdigit():
                raise UserError(f"{path}, line {line_number}: expected 'word count', found {quoted(line)}")
            if word.split() == [word]:
                words.append(word)
    vocabulary = [word for word in dict.fromkeys(words) if not is_special(word)]
    if not vocabulary:
        raise UserError(f"{path} has no words: expected 'word count' on every line")
    return vocabulary


def read_numbered(path: Path) -> list[str]:
    """The words of transformers' vocab.json, {word: number}, in order and as they are spelled there.

    Raises `UserError` for a missing or damaged file, and for other numbers than those from 0 on.
    """
    content = json_object(path)
    if not all(type(index) is int for index in content.values()) or {*content.values()} != {*range(len(content))}:
        raise UserError(f"{path}: expected words that are numbered from 0 without a gap")
    return sorted(content, key=content.__getitem__)


def _lines(text: str, path: Path) -> list[str]:
    if text and not text.endswith("\n"):
        raise UserError(f"{path} is cut short: its last line has no end")
    return text.split("\n")[:-1]


def _read(path: Path, file_kind: str) -> str:
    if not path.is_file():
        raise UserError(f"{path}: no such file, expected the {file_kind}")
    return decoded(read_whole(path, vocabulary=True), path)


def _check_pair(ranks: dict[Pair, int], words: list[str], codes: Path, vocab: Path) -> None:
    """Raises `UserError` unless most words of several characters are merges of the codes."""
    merges = {spelled(left + right) for left, right in ranks}
    longer = [word for word in words if len(word.removesuffix(CONTINUES)) > 1]
    common = sum(word in merges for word in longer)
    if 2 * common < len(longer):
        raise UserError(
            f"{vocab} is not the vocabulary of {codes}, which make {common} of its {len(longer)} words of several "
            "characters"
        )
