"""Finds the symbols in the binarized text of a data folder, and removes other pieces from its sub-words.

A word list of XLM or WordPiece loses its unused words. Segmentations stay: XLM's codes merge the same pieces, and
WordPiece takes the longest match. `fairseq_xl.checkpoints.sentencepiece_surgery` cuts SentencePiece models.
`V` symbols of the dictionary.
"""

import logging
import shutil
from pathlib import Path

import numpy as np

from fairseq_xl.checkpoints.sentencepiece_surgery import ordinary_pieces, read_model, remove_pieces
from fairseq_xl.data.store.binarized_text import open_text
from fairseq_xl.data.vocabulary import wordpiece
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.data.vocabulary.subwords import FILES, open_subwords, vocabulary_kind
from fairseq_xl.errors import UserError
from fairseq_xl.io.files import replacing, write_lines

logger = logging.getLogger(__name__)


def texts_of(folder: Path) -> list[Path]:
    """Prefixes of all binarized texts of a data folder except back-translated ones, which a warning names.

    Raises `UserError` if there are none.
    """
    prefixes = sorted({path.with_suffix("") for end in ("idx", "bin") for path in folder.glob(f"[!.]*/*.{end}")})
    back_translated = [prefix for prefix in prefixes if prefix.name.startswith("back-")]
    for prefix in back_translated:
        logger.warning("%s is left out: `fairseq-xl back-translate` writes such pairs again", prefix)
    texts = [prefix for prefix in prefixes if prefix not in back_translated]
    if not texts:
        raise UserError(f"{folder} has no binarized text, which `python -m preprocess` writes")
    return texts


def used_symbols(texts: list[Path], dictionary: XLDictionary) -> np.ndarray:
    """The symbols that occur in binarized texts: (V,) bool. Raises `UserError` as `open_text` does."""
    used = np.zeros(len(dictionary), dtype=bool)
    for prefix in texts:
        pair = "-" in prefix.parent.name
        language = prefix.name.rpartition(".")[2] if pair else prefix.parent.name
        used |= open_text(prefix, language, len(dictionary)).counts() > 0
    return used


def cut_subwords(data: Path, folder: Path, dictionary: XLDictionary, used: np.ndarray) -> np.ndarray:
    """Writes the files of the cut sub-words of a data folder to another folder.

    Args:
        dictionary: the dictionary of `data`.
        used: (V,) bool, the symbols that the text has.

    Returns: (V,) bool, the symbols that the cut sub-words have.
    Raises `UserError` as `open_subwords` does, and for a model that lacks a piece of the text.
    """
    kind, subwords = vocabulary_kind(data), open_subwords(data)
    pieces = {dictionary.symbols[index] for index in np.flatnonzero(used & dictionary.is_piece)}
    *copied, listed = FILES[kind]
    if lacking := pieces - set(subwords.symbols):
        raise UserError(
            f"{data} has the piece {min(lacking)!r}, which {data / listed} lacks: its text has other sub-words"
        )
    for name in copied:
        shutil.copyfile(data / name, folder / name)
    if kind != "sentencepiece":
        special = wordpiece.SPECIAL if kind == "wordpiece" else ()
        names = wordpiece.read_vocabulary(data / listed) if kind == "wordpiece" else subwords.symbols[1:]
        remaining = [name for name in names if name in pieces or name in special]
        counts = [f" {dictionary.count[dictionary.index(name)]}" if kind == "xlm" else "" for name in remaining]
        write_lines(folder / listed, map(str.__add__, remaining, counts))
        return used
    old_pieces = {dictionary.symbols[index] for index in dictionary.pieces}
    model = remove_pieces(read_model(data / listed), pieces, old_pieces)
    with replacing(folder / listed) as file:
        file.write(model.SerializeToString())
    kept_symbols = np.zeros(len(dictionary), dtype=bool)
    kept_symbols[[dictionary.index(piece) for piece in ordinary_pieces(model) if piece in old_pieces]] = True
    return kept_symbols
