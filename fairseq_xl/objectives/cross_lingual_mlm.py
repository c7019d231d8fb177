"""Cross-lingual masked language modelling (Unicoder, U6)."""

import numpy as np
import torch

from fairseq_xl.data.framing import pad_rows
from fairseq_xl.errors import UserError
from fairseq_xl.objectives.base import Objective
from fairseq_xl.objectives.mlm import MaskedObjective


@Objective.register
class CrossLingualMLM(MaskedObjective):
    """Masked language modelling on documents in which every other sentence is replaced by its translation."""

    name = "cross_lingual_mlm"
    reads = "parallel_documents"

    @property
    def example_length(self):
        """Tokens of a window before framing."""
        return self.cfg.length - self.framed_tokens

    @property
    def positions(self):
        """Positions that the longest window takes."""
        return self.cfg.length

    def check(self, source):
        """Raises `UserError` for bitext without documents."""
        if not source.has_documents:
            pair = "-".join(source.codes)
            raise UserError(
                f"{source.prefix}: no line is empty on both sides, so {self.name} would read one single document: "
                f"put empty lines between documents, or leave out the pair with {self.name}.leave_out={pair}"
            )

    def collate(self, draws, source):
        """Tokens and languages (B, T), predicted positions and targets (N,): `<s>` and sentences that end in `</s>`."""
        rows, languages = [], []
        given = draws.examples, self.example_length
        for sentences, codes in zip(source.texts(*given), source.languages(*given)):
            ids = [self.dictionary.language_id(code) for code in codes]
            rows.append(self.framing.sentence(np.concatenate(sentences)))
            each = np.repeat(ids, [len(sentence) for sentence in sentences])
            languages.append(np.append(each[:1], each))  # <s> has the language of the first sentence
        return self.masked(rows, draws.keys) | {"languages": torch.from_numpy(pad_rows(languages, 0))}
