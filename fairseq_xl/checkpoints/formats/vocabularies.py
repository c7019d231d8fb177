"""Vocabularies of published models: the row of the file for each symbol of ours.

Our order is ``<s> <pad> </s> <unk>``, pieces, ``<mask>`` and ``[xx]`` for each language.

==================== ===========================================================================================
XLM-R                the same without ``[xx]``
mBART                the same with ``de_DE`` for ``[de]``, and ``<mask>`` last
VECO's released one  the same with ``[xx]`` among the pieces or absent, and ``<mask>`` last or absent
XLM                  ``<s> </s> <pad> <unk>``, ten ``<specialN>``, words; ``<special1>`` is our ``<mask>``
mBERT                ``[PAD]``, …, ``[UNK] [CLS] [SEP] [MASK]``, pieces; ``[CLS]`` is ``<s>``, ``[SEP]`` ``</s>``
==================== ===========================================================================================
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

import sentencepiece

from fairseq_xl.data.symbols import LANGUAGE_SYMBOL, MASK, SPECIAL
from fairseq_xl.errors import UserError

XLM_MASK = "<special1>"
XLM_SPECIAL = re.compile(r"<special\d+>")
BERT_SPECIAL = dict(zip(("[CLS]", "[PAD]", "[SEP]", "[UNK]"), SPECIAL))
BERT_MASK = "[MASK]"
#: languages of mBART-25 in the order of its rows (Liu et al. 2020), and those that mBART-50 adds (Tang et al. 2020)
MBART_25 = (
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP nl_XX "
    "ro_RO ru_RU si_LK tr_TR vi_VN zh_CN"
).split()
MBART_50 = [
    *MBART_25,
    *"af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE".split(),
    *"sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI".split(),
]


@dataclass(frozen=True)
class Vocabulary:
    """A published model's vocabulary in our order.

    Attributes:
        symbols: <s> <pad> </s> <unk>, pieces, <mask>.
        languages: languages that have a row; their rows come after those of `symbols`.
        rows: the row of the file for each of these; None for all rows in the order of the file; -1 for a `<mask>` that
            the file lacks.
        origin: the file that lists the symbols.
    """

    symbols: list[str]
    origin: Path
    languages: list[str] = field(default_factory=list)
    rows: list[int] | None = None


def of_pieces(count: int, origin: Path) -> Vocabulary:
    """XLM-R's vocabulary, from dict.txt or a SentencePiece model; `count` rows."""
    symbols = [*SPECIAL, *_pieces(origin), MASK]
    _check_count(count, len(symbols), origin)
    return Vocabulary(symbols, origin)


def of_mbart(count: int, origin: Path) -> Vocabulary:
    """mBART-25's or mBART-50's vocabulary, from its SentencePiece model; `count` rows."""
    return _with_codes([*SPECIAL, *_pieces(origin)], count, origin, {25: MBART_25, 52: MBART_50})


def of_fairseq_translation(count: int, origin: Path, codes: list[str]) -> Vocabulary:
    """The vocabulary of fairseq's mBART, with these language codes, or of VECO's released model, from dict.txt."""
    listed = [*SPECIAL, *_pieces(origin)]
    if codes:
        return _with_codes(listed, count, origin, {len(codes): codes})
    found = {row: match[1] for row, symbol in enumerate(listed) if (match := LANGUAGE_SYMBOL.fullmatch(symbol))}
    if count not in (len(listed), len(listed) + 1):
        _check_count(count, len(listed) + 1, origin)
    plain = [row for row in range(len(listed)) if row not in found]
    mask = len(listed) if count > len(listed) else -1
    languages = [language_of(code) for code in found.values()]
    return Vocabulary([*(listed[row] for row in plain), MASK], origin, languages, [*plain, mask, *found])


def _with_codes(listed: list[str], count: int, origin: Path, known: dict[int, list[str]]) -> Vocabulary:
    """Pieces, then one of the `known` lists of codes {its length: codes}, then <mask>."""
    codes = known.get(count - len(listed) - 1)
    if codes is None:
        expected = " or ".join(str(len(listed) + 1 + number) for number in known)
        raise UserError(f"it has {count} rows of tokens, and {origin} and its language codes make {expected} symbols")
    first = len(listed)
    rows = [*range(first), first + len(codes), *range(first, first + len(codes))]
    return Vocabulary([*listed, MASK], origin, [language_of(code) for code in codes], rows)


def language_of(code: str) -> str:
    """``de`` for mBART's code ``de_DE`` or ``de_XX``."""
    return re.sub(r"_[A-Z]{2}$", "", code)


def of_xlm(count: int, numbered: object, origin: Path) -> Vocabulary:
    """XLM's vocabulary {row: word}, of which the file `origin` is the source."""
    words = _in_order(numbered, origin)
    _check_count(count, len(words), origin)
    place = {word: row for row, word in enumerate(words)}
    missing = [symbol for symbol in (*SPECIAL, XLM_MASK) if symbol not in place]
    if missing:
        raise UserError(f"{origin} has no {missing[0]} among its words")
    plain = [row for row, word in enumerate(words) if word not in SPECIAL and not XLM_SPECIAL.fullmatch(word)]
    rows = [*(place[symbol] for symbol in SPECIAL), *plain, place[XLM_MASK]]
    return Vocabulary([*(words[row] for row in rows[:-1]), MASK], origin, [], rows)


def of_bert(count: int, origin: Path) -> Vocabulary:
    """BERT's vocabulary, from vocab.txt; `count` rows."""
    words = _lines(origin)
    _check_count(count, len(words), origin)
    place = {word: row for row, word in enumerate(words)}
    missing = [symbol for symbol in (*BERT_SPECIAL, BERT_MASK) if symbol not in place]
    if missing:
        raise UserError(f"{origin} has no {missing[0]} among its pieces")
    plain = [row for row, word in enumerate(words) if word not in BERT_SPECIAL and word != BERT_MASK]
    rows = [*(place[symbol] for symbol in BERT_SPECIAL), *plain, place[BERT_MASK]]
    return Vocabulary([*SPECIAL, *(words[row] for row in plain), MASK], origin, [], rows)


def _in_order(numbered: object, origin: Path) -> list[str]:
    if not isinstance(numbered, dict):
        raise UserError("it holds no 'dico_id2word', which lists the words of its rows")
    if numbered.keys() != set(range(len(numbered))):
        raise UserError(f"the words of {origin} are not numbered from 0 without a gap")
    return [numbered[row] for row in range(len(numbered))]


def _check_count(rows: int, symbols: int, origin: Path) -> None:
    if rows != symbols:
        raise UserError(f"it has {rows} rows of tokens, and {origin} makes {symbols} symbols")


def _pieces(origin: Path) -> list[str]:
    """The ordinary pieces in a dict.txt or a SentencePiece model, in order."""
    found = [line.rpartition(" ")[0] for line in _lines(origin)] if origin.suffix == ".txt" else _of_model(origin)
    return [piece for piece in found if piece not in (*SPECIAL, MASK)]


def _lines(file: Path) -> list[str]:
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        kind = "fairseq dictionary" if file.name == "dict.txt" else "vocabulary"
        raise UserError(f"{file} is not a {kind}: {error}") from error
    return [line.rstrip() for line in lines if line.strip()]


def _of_model(file: Path) -> list[str]:
    """The ordinary pieces of a SentencePiece model in order."""
    try:
        model = sentencepiece.SentencePieceProcessor(model_file=str(file))
    except (RuntimeError, OSError):
        raise UserError(f"{file} is not a SentencePiece model") from None
    ids = range(model.get_piece_size())
    return [model.id_to_piece(n) for n in ids if not (model.is_unknown(n) or model.is_control(n) or model.is_unused(n))]
