"""Online back-translation: the model restores a sentence from its own translation of it.

Sennrich et al. 2016; Lample & Conneau 2019, section 4.2.

Legend: B batch, S tokens of the generated source, T tokens of the sentence, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairseq_xl.data.corpora.base import Texts
from fairseq_xl.data.corpora.sentences import Sentences
from fairseq_xl.data.framing import Framing, InputLength, find_padding, pad_rows
from fairseq_xl.data.noise.randomness import SOURCE_LANGUAGE, uniforms
from fairseq_xl.data.plan.epoch_plan import BatchSpec
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError
from fairseq_xl.objectives.base import STATISTICS, Batch, Objective, ObjectiveConfig, Term
from fairseq_xl.objectives.sequence import SequenceObjective, decoder_input, decoder_target, sequence_terms


@dataclass
class BackTranslationConfig(ObjectiveConfig):
    """Options of `back_translation`."""

    length: int = 100  # maximum length of a sentence, in tokens, with special symbols; longer ones are left out
    alpha: float = 0.0  # exponent of the sampling shares of languages; 0: equal shares


@Objective.register
class BackTranslation(SequenceObjective):
    """Predicts a sentence from its greedy translation, made without gradient, into a language drawn uniformly."""

    Config = BackTranslationConfig
    name = "back_translation"
    corpus_class = Sentences

    def __init__(self, cfg: Any, dictionary: XLDictionary, framing: Framing) -> None:
        super().__init__(cfg, dictionary, framing)
        self.set_languages(dictionary.languages)

    def set_languages(self, codes: Sequence[str]) -> None:
        """Sets the languages of the translations; raises `UserError` for fewer than two."""
        if len(codes) < 2:
            raise UserError(f"back_translation needs two languages, this run has {', '.join(codes) or 'none'}")
        self.language_ids = [self.dictionary.language_id(code) for code in codes]

    @property
    def input_length(self) -> InputLength:
        """`InputLength` of a sentence with ``<s>`` or ``[xx]`` and ``</s>``."""
        return InputLength(text=self.cfg.length - 1, symbols=1, positions=self.cfg.length)

    def collate(self, batch_spec: BatchSpec, corpus: Texts) -> Batch:
        """Sentences as source and target, languages (B, 1), and ``other_languages`` of their translations (B, 1)."""
        sentences = [sentence for (sentence,) in self.texts(batch_spec, corpus)]
        tokens = pad_rows([self.framing.sentence(sentence) for sentence in sentences], self.dictionary.pad())
        target = torch.from_numpy(pad_rows(sentences, self.dictionary.pad()))
        languages = self.languages(batch_spec, corpus)
        return {
            "tokens": torch.from_numpy(tokens),
            "padding_mask": find_padding(tokens, self.dictionary.pad()),
            "languages": languages,
            "other_languages": self._draw_target_languages(languages, batch_spec.keys),
            "prev_output_tokens": decoder_input(target, self.dictionary.first_language + languages),
            **decoder_target(target, self.dictionary.pad()),
        }

    def _draw_target_languages(self, languages: Tensor, keys: np.ndarray) -> Tensor:
        """Draws a target language for each of the source languages (B, 1): ids (B, 1)."""
        ids = torch.tensor(self.language_ids)
        indices = (languages == ids).int().argmax(dim=1, keepdim=True)  # into the languages of the run
        draws = torch.from_numpy(uniforms(keys, 1, SOURCE_LANGUAGE))
        return ids[(indices + 1 + (draws * (len(ids) - 1)).long()) % len(ids)]

    def loss(self, model: Any, batch: Batch) -> dict[str, Term]:
        """{"back_translation": `Term` over the tokens of the sentences}, and the counts of translations.

        In validation the translations are translated back, for the BLEU of round trips (Lample et al. 2018a, section
        4.3). A batch may have the result of `translated` as ``source``.
        """
        translated = batch.get("source") or self.translated(model, batch)
        (term,) = sequence_terms(model, translated)
        if self.scorer is None:
            return {self.name: term}
        back = translated | {"other_languages": batch["languages"]}
        round_trips = None if model.training else self.translations(model, back)
        return {self.name: term, STATISTICS: self.scorer.counted(batch, translated["tokens"], round_trips, "languages")}

    def translated(self, model: Any, batch: Batch) -> Batch:
        """The batch with its translations into ``other_languages`` as ``tokens`` (B, S), and the same target."""
        return batch | self.as_source(self.translations(model, batch), batch["other_languages"])

    def as_source(self, sentences: Tensor, languages: Tensor) -> Batch:
        """Sentences ``x </s>`` (B, S-1), padded on the right, and their languages (B, 1) as input of the encoder."""
        start, pad = torch.full_like(sentences[:, :1], self.framing.start), self.dictionary.pad()
        tokens = torch.cat((start, sentences), dim=1)
        return {"tokens": tokens, "padding_mask": tokens.eq(pad), "languages": languages}
