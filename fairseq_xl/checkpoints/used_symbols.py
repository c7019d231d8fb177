"""Finds the symbols in the binarized text of a data folder. `V` symbols of the dictionary."""

import logging
from pathlib import Path

import numpy as np

from fairseq_xl.data.store.binarized_text import open_text
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError

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
