"""The joint vocabulary: special symbols, pieces, `<mask>` and one symbol for each language."""

import io
import re
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from fairseq.data import Dictionary, data_utils

from fairseq_xl.data import Numbers
from fairseq_xl.data.store.plain_folder import dictionary_file, plain_languages
from fairseq_xl.data.vocabulary.special_symbols import LANGUAGE_SYMBOL, MASK, PADDING, WORD_START, language_symbols
from fairseq_xl.errors import QUOTED_NAME, UserError
from fairseq_xl.io.files import read_whole, write_lines
from fairseq_xl.io.fingerprints import symbols_digest

SENTENCEPIECE = "sentencepiece"  # `WORD_START` in front of the first piece of a word
BPE = "@@ "  # subword-nmt, fastBPE: @@ behind all pieces of a word but the last one
WORDPIECE = "##"  # BERT: ## in front of all pieces of a word but the first one
#: of a dictionary whose `word_mark` is None, for messages
UNMARKED = (
    f"no piece of the dictionary begins with {WORD_START}, as SentencePiece's do, or with ##, as WordPiece's do, or "
    "ends with @@, as those of BPE do"
)
#: names of fairseq's ways to join pieces, for --remove-bpe: each joins them by the dictionary's own mark
JOINING = (SENTENCEPIECE, BPE, "@@", "subword_nmt", WORDPIECE, "wordpiece")


def write_dictionary(path: str | Path, symbols: Iterable[str], counts: Iterable[int]) -> None:
    """Writes ``dict.txt``, lines ``symbol count``, with the symbols after ``<s> <pad> </s> <unk>``."""
    write_lines(path, [f"{symbol} {count}" for symbol, count in zip(symbols, counts)])


class XLDictionary(Dictionary):
    """fairseq's dictionary in the order of XLM-R and mBART files.

    ``<s>=0 <pad>=1 </s>=2 <unk>=3``, pieces, ``<mask>``, then ``[xx]`` for every language. The language symbols
    are contiguous and last: the id of a language is the index of its symbol less `first_language`.
    """

    @classmethod
    def load(cls, path: str | Path, languages: Iterable[str] | None = None) -> "XLDictionary":
        """Reads ``dict.txt``, and appends `<mask>` and the symbols of languages where the file lacks them.

        `languages` are in order; None: those of the text beside ``dict.txt``, sorted, unless `fairseq-xl data prepare`
        wrote it. Raises `UserError` for a missing or malformed file.
        """
        if languages is None:
            languages = plain_languages(Path(path).parent) if Path(path).name == "dict.txt" else ()
        path = dictionary_file(path)
        if not Path(path).is_file():
            raise UserError(f"{path}: no such dictionary: `fairseq-xl data prepare` writes it beside the binary text")
        dictionary = cls()
        try:
            # given a path, fairseq hides the encoding error
            dictionary.add_from_file(io.StringIO(read_whole(path, vocabulary=True).decode("utf-8-sig")))
        except UserError:
            raise
        except (ValueError, RuntimeError) as error:
            message = " ".join(str(error).split())  # fairseq quotes a line with its newline
            raise UserError(f"{path} is not a fairseq dictionary ('symbol count' on every line): {message}") from error
        dictionary.mask_index = dictionary.add_symbol(MASK, n=0)
        for symbol in language_symbols(languages):
            dictionary.add_symbol(symbol, n=0)
        first = len(dictionary)
        while LANGUAGE_SYMBOL.fullmatch(dictionary.symbols[first - 1]):
            first -= 1
        dictionary.first_language, dictionary._named = first, []
        dictionary.languages = [symbol[1:-1] for symbol in dictionary.symbols[first:]]
        before_mask = dictionary.symbols[dictionary.mask_index - 1]
        if dictionary.mask_index != first - 1 or (first == len(dictionary) and LANGUAGE_SYMBOL.fullmatch(before_mask)):
            raise UserError(f"{path}: {MASK} must come after the last piece and then only the language symbols")
        return dictionary

    @property
    def num_languages(self) -> int:
        """Number of `[xx]` symbols."""
        return len(self.languages)

    @property
    def text_languages(self) -> list[str]:
        """The languages of text: those that have a symbol; if none has, as in published models, those named so far."""
        return self.languages or self._named

    def language_id(self, language: str) -> int:
        """Index of a language among `text_languages`; `UserError` for one that a dictionary with languages lacks."""
        if language not in self.text_languages:
            if language in ("True", "False"):
                raise UserError(f"language {language}: {QUOTED_NAME}")
            if self.languages:
                remedy = f"`fairseq-xl model extend-vocabulary --langs {language}` adds one"
                expected = f"expected {', '.join(self.languages)}; {remedy}"
                raise UserError(f"language {language!r} has no symbol in the dictionary: {expected}")
            self._named.append(language)
        return self.text_languages.index(language)

    def language_symbol(self, language: str) -> int:
        """Index of ``[xx]`` in the dictionary."""
        return self.first_language + self.language_id(language)

    @property
    def shared(self) -> list[int]:
        """Ids of ``<s> <pad> </s> <unk>`` and ``<mask>``; all languages share them (Artetxe et al. 2020, section 2)."""
        return [*range(self.nspecial), self.mask_index]

    @cached_property
    def pieces(self) -> Numbers:
        """(P,) indices of the ordinary pieces, which masking may replace and random words are sampled from."""
        ids = np.arange(self.nspecial, self.first_language)
        return ids[(ids != self.mask_index) & ~self.is_padding[ids]]

    @cached_property
    def is_padding(self) -> np.ndarray:
        """(V,) bool: True for the symbols ``madeupword…``, which no text has."""
        return np.array([symbol.startswith(PADDING) for symbol in self.symbols])

    @cached_property
    def is_piece(self) -> np.ndarray:
        """(V,) bool: False for every special symbol."""
        return np.isin(np.arange(len(self)), self.pieces)

    @cached_property
    def is_output(self) -> np.ndarray:
        """(V,) bool: True for the symbols that a translation may have: pieces and ``</s>``."""
        return np.isin(np.arange(len(self)), [*self.pieces, self.eos()])

    @cached_property
    def word_mark(self) -> str | None:
        """Word mark of the pieces: `SENTENCEPIECE`, `BPE`, `WORDPIECE` or None; the most frequent one."""
        names = [self.symbols[index] for index in self.pieces]
        counts = {
            SENTENCEPIECE: sum(name.startswith(WORD_START) for name in names),
            BPE: sum(name.endswith("@@") for name in names),
            WORDPIECE: sum(name.startswith("##") for name in names),
        }
        return max(counts, key=counts.__getitem__) if any(counts.values()) else None

    def string(self, tensor: Any, bpe_symbol: str | None = None, *arguments: Any, **options: Any) -> str:
        """fairseq's text of ids; any name of `JOINING` joins the pieces by the mark that the dictionary has."""
        if bpe_symbol not in JOINING or getattr(tensor, "ndim", 1) == 2:  # fairseq calls this for each row
            return super().string(tensor, bpe_symbol, *arguments, **options)
        return self.joined(super().string(tensor, None, *arguments, **options), bpe_symbol)

    def joined(self, pieces: str, default: str | None = None) -> str:
        """Pieces, separated by spaces -> text in which they are joined by the dictionary's mark.

        If languages share no piece, pieces lose the suffix of their language. `default` is the mark of a dictionary
        without one; None leaves its pieces as they are.
        """
        if self._suffix is not None:
            pieces = self._suffix.sub("", pieces)
        return joined(pieces, self.word_mark or default)

    @cached_property
    def _suffix(self) -> re.Pattern[str] | None:
        """Regular expression of the suffix ``@xx`` of all pieces if languages share no piece; otherwise None."""
        pattern = re.compile(rf"@(?:{'|'.join(map(re.escape, self.languages))})(?= |$)")
        names = (self.symbols[index] for index in self.pieces)
        return pattern if self.languages and all(map(pattern.search, names)) else None

    @cached_property
    def word_boundaries(self) -> tuple[np.ndarray, np.ndarray]:
        """Pieces that begin a word, (V,) bool, and pieces that end one, (V,) bool, as far as their mark shows it."""
        begins, ends = np.zeros((2, len(self)), dtype=bool)
        if self.word_mark == SENTENCEPIECE:
            begins[:] = [symbol.startswith(WORD_START) for symbol in self.symbols]
        elif self.word_mark == BPE:
            ends[:] = [not symbol.endswith("@@") for symbol in self.symbols]
        elif self.word_mark == WORDPIECE:
            begins[:] = [not symbol.startswith("##") for symbol in self.symbols]
        return begins, ends

    @cached_property
    def counts(self) -> np.ndarray:
        """(V,) float: frequency of every symbol in the training text."""
        return np.asarray(self.count, dtype=np.float64)

    def digest(self) -> str:
        """SHA-256 over the symbols in order, without their counts: two vocabularies agree if and only if it does."""
        return symbols_digest(self.symbols)


def joined(pieces: str, mark: str | None) -> str:
    """Pieces, separated by spaces -> text in which they are joined to words by their mark; None: unchanged."""
    if mark == WORDPIECE:
        return re.sub(r"(^| )##", "", pieces)
    return data_utils.post_process(pieces, mark)
