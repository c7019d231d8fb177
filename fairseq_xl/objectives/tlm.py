"""Translation language modelling (XLM section 3.4, X7).

A sentence pair is one sequence, masked on both sides; positions of the second half start from 0 again and each
half has its own language embedding.
"""

import numpy as np
import torch

from fairseq_xl.data.framing import pad_rows
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
        rows, positions, languages = [], [], []
        given = draws.examples, self.example_length
        for pair, codes, key in zip(source.texts(*given), source.languages(*given), draws.keys):
            first, ids = int(key & np.uint64(1)), [self.dictionary.language_id(code) for code in codes]
            tokens, half = self.framing.pair(pair[first], pair[1 - first])
            rows.append(tokens)
            positions.append(np.concatenate((np.arange(half), np.arange(len(tokens) - half))))
            languages.append(np.repeat((ids[first], ids[1 - first]), (half, len(tokens) - half)))
        return self.masked(rows, draws.keys) | {
            "positions": torch.from_numpy(pad_rows(positions, 0)),
            "languages": torch.from_numpy(pad_rows(languages, 0)),
        }
