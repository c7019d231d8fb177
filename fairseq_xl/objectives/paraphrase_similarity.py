"""Translation ranking, which trains the model that mines hard negatives (Huang et al. 2019, section 3).

Legend: B pairs, T and S time, C channels.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from fairseq_xl.data.corpora.base import Texts
from fairseq_xl.data.corpora.sentence_pairs import SentencePairs
from fairseq_xl.data.framing import InputLength, pad_rows
from fairseq_xl.data.plan.epoch_plan import BatchSpec
from fairseq_xl.models.dan import XLDANModel
from fairseq_xl.objectives.base import Batch, Objective, ObjectiveConfig, Term


@dataclass
class SimilarityConfig(ObjectiveConfig):
    """Options of `paraphrase_similarity`."""

    length: int = 128  # maximum length of each sentence, in tokens (Huang et al. 2019, section 4)
    scale: float = 20.0  # factor of the dot products of unit vectors

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("scale", self.scale > 0, "more than 0")
        self.require("scale", self.scale <= 10000, "at most 10000, which 16 bits can hold")


@Objective.register
class ParaphraseSimilarity(Objective):
    """Ranks the translation of each sentence above the other sentences of the batch, in both directions.

    The loss is the cross-entropy of the scaled dot products with all B candidates, averaged over the two directions.
    Pairs with a copy of the sentence or of its translation are not candidates. Batches have examples of similar length,
    so the other candidates are random sentences of similar length.
    """

    Config = SimilarityConfig
    name = "paraphrase_similarity"
    corpus_class = SentencePairs
    model_class = XLDANModel
    language_modeling = ()

    @property
    def input_length(self) -> InputLength:
        """`InputLength` of sentences without symbols; one symbol per pair is counted."""
        return super().input_length._replace(symbols=1)

    def collate(self, batch_spec: BatchSpec, corpus: Texts) -> Batch:
        """Tokens of the first sentences (B, T), translations (B, S) and copies (B, B) bool."""
        pairs = self.texts(batch_spec, corpus)
        sides = [pad_rows([words[:-1] for words in side], self.dictionary.pad()) for side in zip(*pairs)]
        copies = np.zeros((len(pairs), len(pairs)), dtype=bool)
        for side in sides:
            groups = np.unique(side, axis=0, return_inverse=True)[1].reshape(-1)
            copies |= groups[:, None] == groups
        np.fill_diagonal(copies, False)
        return {
            "tokens": torch.from_numpy(sides[0]),
            "translations": torch.from_numpy(sides[1]),
            "copies": torch.from_numpy(copies),
        }

    def loss(self, model: Any, batch: Batch) -> dict[str, Term]:
        """{"paraphrase_similarity": `Term` over B pairs}."""
        similarity = model.vectors(batch["tokens"]) @ model.vectors(batch["translations"]).T
        similarity = (self.cfg.scale * similarity).masked_fill(batch["copies"], float("-inf"))
        target = torch.arange(len(similarity), device=similarity.device)
        row, column = (F.cross_entropy(scores, target, reduction="sum") for scores in (similarity, similarity.T))
        return {self.name: Term((row + column) / 2, len(target))}
