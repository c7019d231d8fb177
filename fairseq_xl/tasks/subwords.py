"""``--bpe xl_subwords``: the sub-words of the data folder, of any kind, for raw text in fairseq's commands."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq.data.encoders import register_bpe
from fairseq.dataclass import FairseqDataclass

from fairseq_xl.data.dictionary import XLDictionary
from fairseq_xl.data.encoding import check_pieces
from fairseq_xl.data.subwords import FILES, open_subwords, vocabulary_kind
from fairseq_xl.data.symbols import SPECIAL
from fairseq_xl.data.text import languages_apart, place_of_subwords
from fairseq_xl.errors import UserError

MARKS = ("\u2581", "@@", "##")  # of SentencePiece, BPE and WordPiece


@dataclass
class XLSubwordsConfig(FairseqDataclass):
    """`xl_subwords` has no options: the data folder says which sub-words it has."""


@register_bpe("xl_subwords", dataclass=XLSubwordsConfig)
class XLSubwords:
    """fairseq's BPE with the sub-words of a data folder.

    Args:
        cfg: the config, without options.
        folder: the data folder.
        dictionary: the joint dictionary, whose word mark joins pieces.
        language: language of the text, which has sub-words of its own if languages share no piece.
        keeps_pieces: whether a line of pieces (`is_in_pieces`) stays as it is.

    Raises `UserError` without a language if languages share no piece, and as `open_subwords` does.
    """

    def __init__(
        self,
        cfg: Any,
        folder: Path | None = None,
        dictionary: XLDictionary | None = None,
        language: str | None = None,
        keeps_pieces: bool = False,
    ):
        if folder is None or dictionary is None:
            raise UserError("--bpe xl_subwords is for the tasks of this package: it reads their data folder")
        apart = languages_apart(folder)
        if apart and language not in apart:
            raise UserError(
                f"--bpe xl_subwords: the languages of {folder} share no piece, each has its own sub-words: expected a "
                f"source language of {', '.join(apart)}, found {language}"
            )
        place, self.suffix = place_of_subwords(folder, language) if language else (folder, "")
        self.subwords, self.dictionary, self.keeps_pieces = open_subwords(place), dictionary, keeps_pieces
        check_pieces(self.subwords, place / FILES[vocabulary_kind(place)][-1], dictionary, self.suffix)

    def encode(self, line: str) -> str:
        """Words -> pieces, separated by spaces."""
        if self.keeps_pieces and self.is_in_pieces(line):
            return line
        (ids,) = self.subwords.encode([line])
        symbols = (self.subwords.symbols[number] for number in ids)
        return " ".join(symbol if symbol in SPECIAL else symbol + self.suffix for symbol in symbols)

    def is_in_pieces(self, line: str) -> bool:
        """Whether a line has a piece of the dictionary with a mark: ``▁the``, ``th@@``, ``##ing``."""
        marked = any(mark in line for mark in MARKS)
        return marked and any(
            word in self.dictionary and any(mark in word and mark != word for mark in MARKS) for word in line.split(" ")
        )

    def decode(self, pieces: str) -> str:
        """Pieces, separated by spaces -> words."""
        return str(self.dictionary.joined(pieces))
