"""Monolingual text as single sentences."""

import logging

import numpy as np

from fairseq_xl.data.corpus import Numbers
from fairseq_xl.data.indexed import open_text
from fairseq_xl.data.spans import Spans
from fairseq_xl.errors import UserError

logger = logging.getLogger(__name__)


class Sentences(Spans):
    """The sentences of one language; empty lines and sentences of more than `length` tokens are left out."""

    def _spans(self, length: int) -> Numbers:
        """Token indices where sentences begin and end, (n, 2); raises `UserError` if all are too long."""
        items = open_text(self.path, self.language)  # a variable: its sizes are unmapped when it is freed
        sizes = np.asarray(items.sizes, dtype=np.int64)
        ends = np.cumsum(sizes)
        chosen = (sizes > 1) & (sizes <= length)
        if not chosen.any():
            raise UserError(f"{self.path}: every sentence has more than {length} tokens")
        if chosen.sum() < self.sentences:
            logger.warning(
                "%s: %d of %d sentences have more than %d tokens and are left out",
                self.path,
                self.sentences - chosen.sum(),
                self.sentences,
                length,
            )
        return np.stack((ends - sizes, ends), axis=1)[chosen]
