"""The pieces of a language by its training text, for --target-pieces-only. Shapes: V vocabulary."""

from collections.abc import Sequence
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairseq_xl.data.corpora.token_stream import piece_counts, training_texts
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError

#: minimum share of a piece in a language's text, relative to its share in any other language's. On LibreOffice help,
#: with German as the language, it bans 0.4 % of German running text and 63 % of English
MIN_RATIO = 0.05


class LanguagePieces:
    """The pieces of each language of data folders.

    A piece belongs to a language if its share of the text is above 0, and at least `MIN_RATIO` times its share of the
    text of each other language of the data folders. So names, digits and punctuation belong to several languages, and a
    rarely quoted word of another language does not.
    """

    def __init__(self, folders: Sequence[str], dictionary: XLDictionary):
        self.folders, self.dictionary = folders, dictionary

    def mask(self, language: str) -> NDArray[np.bool_]:
        """The pieces of a language: (V,) bool."""
        counts = self._counts
        if not counts[language].any():
            folders = ":".join(self.folders)
            raise UserError(f"--target-pieces-only: {folders} has no training text of language {language!r}")
        shares = {code: count / max(count.sum(), 1) for code, count in counts.items()}
        highest = np.max(list(shares.values()), axis=0)
        pieces: NDArray[np.bool_] = (counts[language] > 0) & (shares[language] >= MIN_RATIO * highest)
        return pieces

    @cached_property
    def _counts(self) -> dict[str, Any]:
        """{language: counts (V,) of the pieces in all its training text, monolingual and parallel}."""
        counts = {code: np.zeros(len(self.dictionary), dtype=np.int64) for code in self.dictionary.languages}
        for folder, language in product(self.folders, counts):
            for prefix in training_texts(folder, language):
                counts[language] += piece_counts(prefix, language, len(self.dictionary))
        return {language: np.where(self.dictionary.is_piece, count, 0) for language, count in counts.items()}
