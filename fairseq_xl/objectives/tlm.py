"""Translation language modeling, TLM (Lample & Conneau 2019, section 3.4).

A sentence pair is one sequence with masked tokens in both halves. Positions start from 0 again in the second half, and
each half has its own language embedding. Legend: B batch, T time, N predicted tokens.
"""

import numpy as np

from fairseq_xl.data.corpora.base import Texts
from fairseq_xl.data.corpora.sentence_pairs import SentencePairs
from fairseq_xl.data.plan.epoch_plan import BatchSpec
from fairseq_xl.objectives.base import Batch, Objective
from fairseq_xl.objectives.mlm import MaskedObjective


@Objective.register
class TLM(MaskedObjective):
    """Masked language modeling on the concatenation of a sentence and its translation."""

    name = "tlm"
    corpus_class = SentencePairs

    def collate(self, batch_spec: BatchSpec, corpus: Texts) -> Batch:
        """Tokens, positions, languages (B, T), sentences in random order; predicted positions and targets (N,)."""
        orders = (batch_spec.keys & np.uint64(1)).astype(int)
        pairs, codes = self.texts(batch_spec, corpus), self.language_codes(batch_spec, corpus)
        rows, positions, languages = self.joined(pairs, codes, orders)
        return self.masked(rows, batch_spec.keys) | {"positions": positions, "languages": languages}
