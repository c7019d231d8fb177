"""Supervised translation in both directions (Lample & Conneau 2019, section 5.3).

Legend: B pairs, S and T tokens of source and target.
"""

from dataclasses import dataclass
from typing import Any

import torch

from fairseq_xl.data.corpus import Texts
from fairseq_xl.data.framing import decoder_input, decoder_target, find_packings, find_padding, pad_rows
from fairseq_xl.data.plan import BatchSpec
from fairseq_xl.objectives.base import Batch, Objective, ObjectiveConfig, Term
from fairseq_xl.objectives.sequence import SequenceObjective, sequence_terms


@dataclass
class TranslationConfig(ObjectiveConfig):
    """Options of `translation`."""

    length: int = 99  # maximum length of a sentence, in tokens, without <s>; pairs with a longer one are left out


@Objective.register
class Translation(SequenceObjective):
    """The encoder reads a sentence and the decoder predicts its translation; each pair is used in both directions."""

    Config = TranslationConfig
    name = "translation"
    corpus_type = "parallel"

    def collate(self, batch_spec: BatchSpec, corpus: Texts) -> Batch:
        """Tokens (2B, S), languages (2B, 1), decoder input and target (2B, T): the pairs, then the pairs swapped."""
        pairs = self.texts(batch_spec, corpus)
        sources = [pair[side] for side in (0, 1) for pair in pairs]
        targets = [pair[1 - side] for side in (0, 1) for pair in pairs]
        tokens = pad_rows([self.framing.sentence(source) for source in sources], self.dictionary.pad())
        target = torch.from_numpy(pad_rows(targets, self.dictionary.pad()))
        languages = self.languages(batch_spec, corpus)
        others = torch.cat(languages.chunk(2)[::-1])
        return {
            "tokens": torch.from_numpy(tokens),
            "padding_mask": find_padding(tokens, self.dictionary.pad()),
            **find_packings(self.dictionary.pad(), packing=tokens, target_packing=target.numpy()),
            "languages": languages,
            "other_languages": others,
            "prev_output_tokens": decoder_input(target, self.dictionary.first_language + others),
            **decoder_target(target, self.dictionary.pad()),
        }

    def loss(self, model: Any, batch: Batch) -> dict[str, Term]:
        """{"translation": `Term` over the tokens of the targets}."""
        (term,) = sequence_terms(model, batch)
        return {self.name: term}
