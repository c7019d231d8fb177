"""``--bpe xl_subwords``: the sub-words of the data folder, of any kind, for raw text in fairseq's commands."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairseq.data import encoders
from fairseq.data.encoders import register_bpe
from fairseq.dataclass import FairseqDataclass
from omegaconf import OmegaConf

from fairseq_xl.data.vocabulary import subwords
from fairseq_xl.data.vocabulary.joint_dictionary import BPE, JOINING, SENTENCEPIECE, WORDPIECE, XLDictionary
from fairseq_xl.data.vocabulary.special_symbols import SPECIAL
from fairseq_xl.data.vocabulary.text_encoder import languages_apart, place_of_subwords
from fairseq_xl.errors import UserError
from fairseq_xl.io.fingerprints import sha256_of

MARKS = ("\u2581", "@@", "##")  # of SentencePiece, BPE and WordPiece


@register_bpe("xl_subwords", dataclass=FairseqDataclass)
class XLSubwords:
    """fairseq's BPE with the sub-words of a data folder.

    If languages share no piece, the sub-words are those of `language`. The word mark of the dictionary joins pieces; if
    it `keeps_pieces`, a line of pieces (`is_in_pieces`) is unchanged. Raises `UserError` without a language if
    languages share no piece, and as `open_subwords` does.
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
        path, self.suffix = place_of_subwords(folder, language)
        self.subwords, self.dictionary, self.keeps_pieces = subwords.open_subwords(path), dictionary, keeps_pieces
        subwords.check_pieces(
            self.subwords, path / subwords.FILES[subwords.vocabulary_kind(path)][-1], dictionary, self.suffix
        )

    @classmethod
    def from_folder(cls, folder: Path, dictionary: XLDictionary, language: str) -> "XLSubwords | None":
        """The sub-words of a data folder, for text that may be in pieces already; None if the folder has none."""
        path, _ = place_of_subwords(folder, language)
        if not all(file.exists() for file in subwords.in_folder(path, subwords.vocabulary_kind(path)).files):
            return None
        return cls(None, folder, dictionary, language, keeps_pieces=True)

    def encode(self, line: str) -> str:
        """Words -> pieces, separated by spaces."""
        if self.keeps_pieces and self.is_in_pieces(line):
            return line
        (ids,) = self.subwords.encode([line])
        symbols = (self.subwords.symbols[index] for index in ids)
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


def build_bpe(
    args: Any,
    joins: str | None,
    folder: Path,
    dictionary: XLDictionary,
    encoding: dict[str, Any],
    language: str | None,
    default: Callable[[], Any],
) -> Any:
    """Builds fairseq's BPE for raw text, whose sub-words must be those of a data folder.

    Args:
        args: the options of --bpe; None without.
        joins: --post-process.
        encoding: `encoding_of` the folder.
        language: language of the text, or None.
        default: builds the BPE without --bpe.

    Raises `UserError` for --bpe and --post-process that do not fit the folder.
    """
    _check_bpe(args, joins, folder, dictionary, encoding)
    if getattr(args, "_name", None) == "xl_subwords":
        bpe: Any = XLSubwords(args, folder, dictionary, language)
    else:
        bpe = default() if args is None else encoders.build_bpe(args)
    if bpe is not None and joins in JOINING:
        bpe.decode = str  # --remove-bpe joins the pieces; decoding again would remove all spaces
    return bpe


def _check_bpe(args: Any, joins: str | None, folder: Path, dictionary: XLDictionary, encoding: dict[str, Any]) -> None:
    """Raises `UserError` for --bpe and --post-process that do not fit the sub-words of a data folder."""
    name, kind = getattr(args, "_name", None), subwords.vocabulary_kind(folder)
    if joins not in (None, "none", *JOINING):
        expected = {BPE: "subword_nmt", WORDPIECE: "wordpiece"}.get(dictionary.word_mark or "", SENTENCEPIECE)
        raise UserError(f"--post-process {joins} does not fit the pieces of {folder}: give {expected}")
    if name in (None, "xl_subwords"):
        return
    if kind != "sentencepiece":
        raise UserError(f"--bpe {name}: {folder} has a vocabulary of kind {kind}: give --bpe xl_subwords")
    if languages_apart(folder):
        raise UserError(f"--bpe {name}: the languages of {folder} share no piece: give --bpe xl_subwords")
    if name == "sentencepiece":
        path = folder / "sentencepiece.model"
        if OmegaConf.is_missing(args, "sentencepiece_model"):
            raise UserError(f"--bpe sentencepiece needs --sentencepiece-model {path}")
        subwords.check_pieces(
            subwords.open_model(args.sentencepiece_model, folder), Path(args.sentencepiece_model), dictionary
        )
        digest = sha256_of(args.sentencepiece_model)
        if encoding.get("sentencepiece.model", digest) != digest:
            raise UserError(f"--sentencepiece-model {args.sentencepiece_model}: expected a copy of {path}")
