"""Vocabularies of published models, with the row of the file for each symbol of ours.

Our order is ``<s> <pad> </s> <unk>``, pieces, ``<mask>`` and ``[xx]`` for each language.

==================== ===========================================================================================
XLM-R                the same without ``[xx]``
NLLB                 the same with ``deu_Latn`` for ``[deu_Latn]``, and ``<mask>`` last
mBART                the same with ``de_DE`` for ``[de]``, and ``<mask>`` last
VECO's released one  the same with ``[xx]`` among the pieces or absent, and ``<mask>`` last or absent
CamemBERT            ``<s>NOTUSED <pad> </s>NOTUSED <unk> <unk>NOTUSED <s> </s>``, pieces, ``<mask>``
XLM                  ``<s> </s> <pad> <unk>``, ten ``<specialN>``, words; ``<special1>`` is our ``<mask>``. Exports
                     of this package have ``<mask>``, and ``[xx]`` behind it
mBERT                ``[PAD]``, …, ``[UNK] [CLS] [SEP] [MASK]``, pieces; ``[CLS]`` is ``<s>``, ``[SEP]`` ``</s>``
==================== ===========================================================================================
"""

import logging
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fairseq_xl.checkpoints.layouts.tokenizer_json import added_tokens, rows_of
from fairseq_xl.data.vocabulary.sentencepiece_model import open_sentencepiece, symbols_of
from fairseq_xl.data.vocabulary.special_symbols import LANGUAGE_SYMBOL, MASK, PADDING, SPECIAL
from fairseq_xl.data.vocabulary.wordpiece import SPECIAL as BERT_SPECIAL, read_vocabulary
from fairseq_xl.data.vocabulary.xlm_bpe import END, is_special, read_numbered, spelled_words
from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io.files import read_whole

#: language codes of mBART in the order of its rows; mBART-50 has the others behind them
MBART_LANGUAGES = (
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP nl_XX "
    "ro_RO ru_RU si_LK tr_TR vi_VN zh_CN"
).split()
MBART50_LANGUAGES = [
    *MBART_LANGUAGES,
    *(
        "af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE sw_KE "
        "ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI"
    ).split(),
]
XLM_MASK = "<special1>"
NLLB_LANGUAGE = re.compile("[a-z]{3}_[A-Z][a-z]{3}")
FEW_ROWS, LARGEST_MULTIPLE = 64, 1024  # of padding: `_padding`

logger = logging.getLogger(__name__)


def read_symbols(file: Path, languages: Sequence[str] = ()) -> list[str]:
    """Symbols by row; raises `UserError` for a damaged file.

    Rows of SentencePiece's and fairseq's files are ``<s> <pad> </s> <unk>``, what the file lists, the codes of
    `languages` (`MBART_LANGUAGES`, `MBART50_LANGUAGES`, or none), and ``<mask>``.
    """
    symbols = (_READERS.get(file.name) or _READERS[file.suffix])(file)
    if file.suffix == ".model" or file.name == "dict.txt":
        # as fairseq adds them: a symbol that the file lists stays in its place
        symbols = [*SPECIAL, *(symbol for symbol in symbols if symbol not in SPECIAL)]
        symbols += [symbol for symbol in (*languages, MASK) if symbol not in symbols]
    repeated = len(symbols) - len(set(symbols))
    if repeated:
        twice = next(symbol for row, symbol in enumerate(symbols) if symbol in symbols[:row])
        raise UserError(f"{file} has {repeated} symbols more than once, such as {quoted(twice)}")
    return symbols


def _dictionary(file: Path) -> list[str]:
    try:
        lines = read_whole(file, vocabulary=True).decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not a fairseq dictionary: {error}") from error
    return [line.rstrip().rpartition(" ")[0] for line in lines if line]


def _pieces(file: Path) -> list[str]:
    return [symbol for symbol in symbols_of(open_sentencepiece(file)) if symbol != SPECIAL[-1]]


_READERS: dict[str, Callable[[Path], list[str]]] = {
    ".model": _pieces,
    "dict.txt": _dictionary,  # of fairseq
    "tokenizer.json": rows_of,  # of transformers 5
    "vocab.json": read_numbered,  # of XLM
    "vocab.txt": read_vocabulary,  # of BERT
}


@dataclass(frozen=True)
class Vocabulary:
    """A published model's vocabulary in our order."""

    symbols: list[str]  # <s> <pad> </s> <unk>, pieces, <mask>
    origin: Path  # the file that lists the symbols
    languages: list[str] = field(default_factory=list)  # those that have a row; their rows come after `symbols`
    #: the row of the file for each of these; None: the order of the file; -1 for a `<mask>` that the file lacks
    rows: list[int] | None = None


def from_pieces(count: int, origin: Path) -> Vocabulary:
    """Reads XLM-R's vocabulary from dict.txt, a SentencePiece model or tokenizer.json; `count` rows."""
    return _in_our_order(count, _with_added(read_symbols(origin), origin), origin)


def _with_added(listed: list[str], origin: Path) -> list[str]:
    """The symbols with those behind them that were added to the tokenizer."""
    tokens = added_tokens(origin.parent)
    while len(listed) in tokens:
        listed = [*listed, tokens[len(listed)]["content"]]
    return listed


def from_camembert(count: int, origin: Path) -> Vocabulary:
    """Reads CamemBERT's vocabulary from its SentencePiece model; `count` rows."""
    first = ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", "<s>", "</s>"]
    return _in_our_order(count, [*first, *symbols_of(open_sentencepiece(origin))[3:], MASK], origin)


def from_mbart(count: int, origin: Path) -> Vocabulary:
    """Reads mBART-25's or mBART-50's vocabulary from its SentencePiece model or tokenizer.json; `count` rows."""
    listed = read_symbols(origin, MBART50_LANGUAGES), read_symbols(origin, MBART_LANGUAGES)
    return _in_our_order(count, listed[len(listed[0]) != count], origin, MBART50_LANGUAGES)


def from_nllb(count: int, origin: Path) -> Vocabulary:
    """Reads NLLB's vocabulary from tokenizer.json; `count` rows."""
    listed = read_symbols(origin)
    return _in_our_order(count, listed, origin, list(filter(NLLB_LANGUAGE.fullmatch, listed)))


def from_fairseq_translation(count: int, origin: Path, codes: list[str]) -> Vocabulary:
    """Reads the vocabulary of fairseq's mBART, with these language codes, or of VECO's released model from dict.txt."""
    listed = read_symbols(origin, codes)
    among = codes or list(filter(LANGUAGE_SYMBOL.fullmatch, listed))
    return _in_our_order(count, listed[:-1] if count == len(listed) - 1 else listed, origin, among)


def _in_our_order(count: int, listed: list[str], origin: Path, among: Collection[str] = ()) -> Vocabulary:
    """Makes the vocabulary of a list of symbols by row.

    Languages are ``[xx]`` and mBART's codes behind ``<mask>``. If nothing is behind it, they are the listed symbols of
    `among`: other pieces may look like ``[xx]``, as XLM-R's ``[1]``.
    """
    padding = _padding(count, len(listed), origin)
    listed = [f"{PADDING}{symbol}" if symbol.endswith(">NOTUSED") else symbol for symbol in listed]  # of CamemBERT
    missing = [symbol for symbol in SPECIAL if symbol not in listed]
    if missing:
        raise UserError(f"{origin} has no {missing[0]} among its symbols")
    rows_by_symbol = {symbol: row for row, symbol in enumerate(listed)}
    first, codes = 0, {*among}
    if MASK in listed and listed[-1] != MASK:
        first = listed.index(MASK)
        codes = {*listed[first:]}
    languages = {
        row: language
        for row, symbol in enumerate(listed)
        if row >= first and symbol in codes and (language := language_of(symbol))
    }
    special = [rows_by_symbol.pop(symbol) for symbol in SPECIAL]
    mask = rows_by_symbol.pop(MASK, -1)
    plain = [row for row in rows_by_symbol.values() if row not in languages]
    rows = [*special, *plain, *range(len(listed), count), mask, *languages]
    symbols = [*SPECIAL, *(listed[row] for row in plain), *padding, MASK]
    return Vocabulary(symbols, origin, list(languages.values()), None if rows == list(range(count)) else rows)


def language_of(symbol: str) -> str | None:
    """The language of a symbol: ``de`` of ``[de]`` and mBART's ``de_DE``, ``deu_Latn`` of NLLB's; None of another."""
    match = LANGUAGE_SYMBOL.fullmatch(symbol)
    if match:
        return match[1]
    if NLLB_LANGUAGE.fullmatch(symbol):
        return symbol
    return symbol.partition("_")[0] if symbol in MBART50_LANGUAGES else None


def from_xlm(count: int, numbered: object, origin: Path) -> Vocabulary:
    """Converts XLM's vocabulary {row: word} of the file `origin`."""
    words = _in_order(numbered, origin)
    if MASK in words:  # an export of this package
        return _in_our_order(count, words, origin)
    names = {**dict(zip(SPECIAL, SPECIAL)), MASK: XLM_MASK}
    return _with_names(count, words, names, [not is_special(word) for word in words], origin)


def from_xlm_words(count: int, origin: Path) -> Vocabulary:
    """Reads XLM's vocabulary from vocab.json, in the spelling of our dictionary."""
    listed = read_numbered(origin)
    marked = any(word.endswith(END) for word in listed)  # a vocabulary without marks of words is not changed
    return from_xlm(count, dict(enumerate(spelled_words(listed) if marked else listed)), origin)


def from_bert(count: int, origin: Path) -> Vocabulary:
    """Reads BERT's vocabulary from vocab.txt or tokenizer.json; `count` rows."""
    words = _with_added(read_symbols(origin), origin)
    if SPECIAL[0] in words:  # a model of this package
        return _in_our_order(count, words, origin)
    names = {symbol: name for name, symbol in BERT_SPECIAL.items()}
    return _with_names(count, words, names, [word not in BERT_SPECIAL for word in words], origin)


def _with_names(count: int, words: list[str], names: dict[str, str], plain: list[bool], origin: Path) -> Vocabulary:
    """The vocabulary of words by row with other `names` of our special symbols; `plain` words are none."""
    padding = _padding(count, len(words), origin)
    rows_by_word = {word: row for row, word in enumerate(words)}
    missing = [name for name in names.values() if name not in rows_by_word]
    if missing:
        raise UserError(f"{origin} has no {missing[0]} among its words")
    first, last = [rows_by_word[names[symbol]] for symbol in SPECIAL], rows_by_word[names[MASK]]
    pieces = [row for row, is_plain in enumerate(plain) if is_plain]
    rows = [*first, *pieces, *range(len(words), count), last]
    return Vocabulary([*SPECIAL, *(words[row] for row in pieces), *padding, MASK], origin, [], rows)


def _in_order(numbered: object, origin: Path) -> list[str]:
    if not isinstance(numbered, dict):
        raise UserError("it holds no 'dico_id2word', which lists the words of its rows")
    if numbered.keys() != set(range(len(numbered))):
        raise UserError(f"the words of {origin} are not numbered from 0 without a gap")
    words = [numbered[row] for row in range(len(numbered))]
    strange = [word for word in words if not isinstance(word, str)]
    if strange:
        raise UserError(f"the words of {origin} are not all text: {quoted(strange[0])} is one")
    return words


def _padding(rows: int, symbols: int, origin: Path) -> list[str]:
    """Names of rows behind the symbols, to which programs pad a table; `UserError` for another number of symbols.

    They are fewer than 64, or at most an eighth of the symbols, where the number of rows is the smallest multiple of a
    power of two, at most 1,024, that holds all symbols: Multilingual-MiniLM has 250,037 rows for 250,002 symbols, XLM-R
    XL 250,880.
    """
    padding = rows - symbols
    is_complete = origin.name == "dict.txt" or origin.suffix == ".pth"  # they list padding, or have none
    multiple = min(rows & -rows, LARGEST_MULTIPLE)  # the largest power of two that divides the rows
    if not 0 <= padding < (1 if is_complete else max(FEW_ROWS, min(multiple, symbols // 8 + 1))):
        raise UserError(f"its token embeddings have {rows} rows, but {origin} lists {symbols} symbols")
    if padding:
        logger.warning("%s lists %d symbols: %d rows of the token embeddings are padding", origin, symbols, padding)
    return [f"{PADDING}{number:04d}" for number in range(padding)]
