"""Cross-lingual masked language modeling (Huang et al. 2019, section 3).

Legend: B batch, T time, N predicted tokens.
"""

from typing import Any

import numpy as np
import torch

from fairseq_xl.data.corpora.base import Texts
from fairseq_xl.data.corpora.parallel_documents import ParallelDocuments
from fairseq_xl.data.framing import pad_rows
from fairseq_xl.data.plan.epoch_plan import BatchSpec
from fairseq_xl.errors import UserError
from fairseq_xl.objectives.base import Batch, Objective
from fairseq_xl.objectives.mlm import MaskedObjective


@Objective.register
class CrossLingualMLM(MaskedObjective):
    """Masked language modeling on documents in which every other sentence is replaced by its translation."""

    name = "cross_lingual_mlm"
    corpus_class = ParallelDocuments

    def check(self, corpus: Any) -> None:
        """Raises `UserError` for bitext without document boundaries."""
        if not any((sizes <= 1).all(axis=1).any() for _, sizes in corpus.pairs.blocks()):
            raise UserError(
                f"{corpus.path}: no line is empty on both sides, so {self.name} would read one single document: put "
                f"empty lines between documents, or leave out the pair with {self.name}.leave_out="
                f"{'-'.join(corpus.codes)}"
            )

    def collate(self, batch_spec: BatchSpec, corpus: Texts) -> Batch:
        """Tokens ``<s> x </s> y </s>…`` and languages (B, T), predicted positions and targets (N,)."""
        rows, languages = [], []
        for sentences, codes in zip(self.texts(batch_spec, corpus), self.language_codes(batch_spec, corpus)):
            ids = [self.dictionary.language_id(code) for code in codes]
            rows.append(self.framing.sentence(np.concatenate(sentences)))
            row = np.repeat(ids, [len(sentence) for sentence in sentences])
            languages.append(np.append(row[:1], row))  # <s> has the language of the first sentence
        return self.masked(rows, batch_spec.keys) | {"languages": torch.from_numpy(pad_rows(languages, 0))}
