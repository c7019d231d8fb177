"""Translation of parallel text in both directions, beside other objectives (Lample & Conneau 2019, section 4.2)."""

from dataclasses import dataclass
from typing import Any

from fairseq_xl.data.corpora.base import Texts
from fairseq_xl.data.plan.epoch_plan import BatchSpec
from fairseq_xl.objectives.base import Batch, Objective, ObjectiveConfig, Term
from fairseq_xl.objectives.sequence import ScoredObjective, sequence_terms


@dataclass
class TranslationConfig(ObjectiveConfig):
    """Options of `translation`."""

    length: int = 99  # maximum length of a sentence, in tokens, without <s>; pairs with a longer one are left out


@Objective.register
class Translation(ScoredObjective):
    """The encoder reads a sentence and the decoder predicts its translation; each pair is used in both directions."""

    Config = TranslationConfig
    name = "translation"
    corpus_type = "parallel"

    def collate(self, batch_spec: BatchSpec, corpus: Texts) -> Batch:
        """The pairs, then the pairs swapped: tokens (2B, S), decoder input and target (2B, T), languages (2B, 1)."""
        first, second = zip(*self.texts(batch_spec, corpus))
        languages = self.languages(batch_spec, corpus)
        return self.batch(first + second, second + first, languages, languages.roll(len(first), 0))

    def loss(self, model: Any, batch: Batch) -> dict[str, Term]:
        """{"translation": `Term` over the tokens of the targets}."""
        (term,) = sequence_terms(model, batch)
        return {self.name: term}
