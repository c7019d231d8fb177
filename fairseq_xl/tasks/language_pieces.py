"""The pieces of a language by its training text, for --target-pieces-only. Shapes: V vocabulary."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairseq_xl.data.corpora.token_stream import piece_counts
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError
from fairseq_xl.objectives.translation_scores import training_texts

#: minimum share of a piece in a language's text, relative to its share in any other language's. On LibreOffice help,
#: with German as the language, it bans 0.4 % of German running text and 63 % of English
MIN_RATIO = 0.05


def language_pieces(folders: Sequence[str], dictionary: XLDictionary, language: str) -> NDArray[np.bool_]:
    """`frequent_pieces` of a language in data folders; raises `UserError` without training text of it."""
    counts = {code: np.zeros(len(dictionary), dtype=np.int64) for code in dictionary.languages}
    for folder, code in product(folders, counts):
        for prefix in training_texts(folder, code):
            counts[code] += piece_counts(prefix, code, len(dictionary))
    counts = {code: np.where(dictionary.is_piece, count, 0) for code, count in counts.items()}
    if not counts[language].any():
        raise UserError(f"--target-pieces-only: {':'.join(folders)} has no training text of language {language!r}")
    return frequent_pieces(counts, language)


def frequent_pieces(counts: Mapping[str, Any], language: str) -> NDArray[np.bool_]:
    """The pieces of a language, (V,) bool, by {language: counts of the pieces in its text (V,)}.

    Their share of the text is above 0, and at least `MIN_RATIO` times their share of the text of each other language.
    So names, digits and punctuation belong to several languages, and a rarely quoted word of another one does not.
    """
    shares = {code: count / max(count.sum(), 1) for code, count in counts.items()}
    highest = np.max(list(shares.values()), axis=0)
    pieces: NDArray[np.bool_] = (counts[language] > 0) & (shares[language] >= MIN_RATIO * highest)
    return pieces
