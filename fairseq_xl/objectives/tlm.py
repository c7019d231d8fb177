"""Translation language modelling (XLM section 3.4, X7).

A sentence pair is one sequence, masked on both sides; positions of the second half start from 0 again and each
half has its own language embedding.
"""

import numpy as np

from fairseq_xl.objectives.base import Objective
from fairseq_xl.objectives.mlm import MaskedObjective


@Objective.register
class TLM(MaskedObjective):
    """Masked language modelling on the concatenation of a sentence and its translation."""

    name = "tlm"
    reads = "parallel"
    framed_tokens = 2

    def collate(self, draws, source):
        """Tokens, positions and languages (B, T), predicted positions and targets (N,).

        Which of the two sentences comes first is drawn with each pair.
        """
        given = draws.examples, self.example_length
        orders = (draws.keys & np.uint64(1)).astype(int)
        rows, positions, languages = self.joined(source.texts(*given), source.languages(*given), orders)
        return self.masked(rows, draws.keys) | {"positions": positions, "languages": languages}
