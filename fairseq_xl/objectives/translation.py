"""Supervised translation (Lample & Conneau 2019, sections 4.3 and 5.3)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairseq_xl.data.corpus import Texts
from fairseq_xl.data.plan import BatchSpec, Lengths
from fairseq_xl.objectives.base import Batch, Objective, ObjectiveConfig, Sums, Term
from fairseq_xl.objectives.sequence import NLL, SourceTargetObjective, sequence_losses


@dataclass
class TranslationConfig(ObjectiveConfig):
    """Options of `translation`."""

    length: int = 99  # maximum length of a sentence, in tokens, without <s>; pairs with a longer one are left out
    # each pair is used in both directions; otherwise from the first language into the second
    both_directions: bool = True
    label_smoothing: float = 0.0  # total probability of all symbols but the target, with a single direction


@Objective.register
class Translation(SourceTargetObjective):
    """The encoder reads a sentence and the decoder predicts its translation."""

    Config = TranslationConfig
    name = "translation"
    corpus_type = "parallel"

    def lengths(self, examples: np.ndarray, sizes: np.ndarray, corpus: Any) -> Lengths:
        """Of both sides together, which are source and target in turn, or of each side."""
        if self.cfg.both_directions:
            return Objective.lengths(self, examples, sizes, corpus)
        return super().lengths(examples, sizes, corpus)

    def collate(self, batch_spec: BatchSpec, corpus: Texts) -> Batch:
        """As the base class; with `both_directions` 2B rows: the pairs, then the pairs swapped."""
        if not self.cfg.both_directions:
            return super().collate(batch_spec, corpus)
        first, second = zip(*self.texts(batch_spec, corpus))
        languages = self.languages(batch_spec, corpus)
        return self.batch(first + second, second + first, languages, languages.roll(len(first), 0))

    def num_tokens(self, batch: Batch) -> int:
        """The number of tokens of the targets; with `both_directions` of all sources."""
        return Objective.num_tokens(self, batch) if self.cfg.both_directions else super().num_tokens(batch)

    def loss(self, model: Any, batch: Batch) -> dict[str, Term]:
        """{"translation": `Term` over the tokens of the targets}, and "nll" without smoothing."""
        ((loss, nll, count),) = sequence_losses(model, batch, self.cfg.label_smoothing)
        terms = {self.name: Term(loss, count)}
        return terms if self.cfg.both_directions else terms | {NLL: Term(nll, count, 0.0)}

    # --- log ---------------------------------------------------------------------------------------------------

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of the terms."""
        return (self.name,) if self.cfg.both_directions else super().terms

    @property
    def language_modeling(self) -> tuple[str, ...]:
        """The term whose perplexity is logged."""
        return self.terms[-1:]

    def logged_keys(self, corpora: Iterable[str]) -> list[tuple[str, str]]:
        """The loss of each pair, or the negative log-likelihood of each direction."""
        return [(self.terms[-1], corpus) for corpus in corpora]

    def metric_names(self, corpora: Iterable[str]) -> list[str]:
        """Names of what `values` returns."""
        return Objective.metric_names(self, corpora) if self.cfg.both_directions else super().metric_names(corpora)

    def values(self, sums: Sums) -> dict[str, Any]:
        """As of every objective; with a single direction, as the base class."""
        return Objective.values(self, sums) if self.cfg.both_directions else super().values(sums)
