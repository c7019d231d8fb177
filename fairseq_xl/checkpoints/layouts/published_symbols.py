"""The symbols of a published model in the order of its rows.

========================= ==================================================================
sentencepiece.bpe.model   ``<s> <pad> </s> <unk>``, pieces, language codes (mBART), ``<mask>``
dict.txt                  the same (fairseq)
tokenizer.json            rows of the vocabulary, added tokens (transformers 5)
vocab.json                numbered words (XLM)
vocab.txt                 a word piece a line (BERT)
========================= ==================================================================
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from fairseq_xl.checkpoints.layouts.tokenizer_json import rows_of
from fairseq_xl.data.vocabulary.sentencepiece_model import open_sentencepiece, symbols_of
from fairseq_xl.data.vocabulary.special_symbols import MASK, SPECIAL
from fairseq_xl.data.vocabulary.wordpiece import read_vocabulary
from fairseq_xl.data.vocabulary.xlm_bpe import read_numbered
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


def read_symbols(file: Path, languages: Sequence[str] = ()) -> list[str]:
    """Symbols by row.

    Args:
        languages: language codes of the model, which SentencePiece's and fairseq's files lack: `MBART_LANGUAGES`,
            `MBART50_LANGUAGES`, or none. In the other files they have rows of their own.

    Raises `UserError` for a damaged file.
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
    """Symbols of fairseq's dict.txt, a line "symbol count" each."""
    try:
        lines = read_whole(file, vocabulary=True).decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not a fairseq dictionary: {error}") from error
    return [line.rstrip().rpartition(" ")[0] for line in lines if line]


def _pieces(file: Path) -> list[str]:
    """The ordinary pieces of a SentencePiece model in order."""
    return [symbol for symbol in symbols_of(open_sentencepiece(file)) if symbol != SPECIAL[-1]]


_READERS: dict[str, Callable[[Path], list[str]]] = {
    ".model": _pieces,
    "dict.txt": _dictionary,
    "tokenizer.json": rows_of,
    "vocab.json": read_numbered,
    "vocab.txt": read_vocabulary,
}
