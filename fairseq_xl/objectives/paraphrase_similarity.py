"""Training of the model that finds hard negatives (Unicoder, U5): a translation is nearer than other sentences.

Legend: B pairs, T and S time, C channels.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional as F

from fairseq_xl.data.framing import pad_rows
from fairseq_xl.models.averaging import XLAveragingModel
from fairseq_xl.objectives.base import Objective, ObjectiveConfig, Term


@dataclass
class SimilarityConfig(ObjectiveConfig):
    """Options of `paraphrase_similarity`."""

    length: int = 128  # most tokens of each side (U3)
    scale: float = 20.0  # factor of the dot products of unit vectors

    def __post_init__(self):
        super().__post_init__()
        self.require("scale", self.scale > 0, "more than 0")
        self.require("scale", self.scale <= 10000, "at most 10000, which 16 bits can hold")


@Objective.register
class ParaphraseSimilarity(Objective):
    """Picks each sentence's translation out of those of the batch, whose other sentences are random negatives.

    Random among pairs of similar length, since batches are cut so.
    The cross-entropy of the scaled dot products with all B candidates, the mean of both directions; other pairs that
    hold a copy of the sentence or of its translation are no candidates.
    """

    Config = SimilarityConfig
    name = "paraphrase_similarity"
    reads = "parallel"
    model_class = XLAveragingModel

    language_modeling = ()

    def collate(self, draws, source):
        """Words of the first sentences, (B, T), and of the second ones, (B, S); copies (B, B) bool."""
        pairs = source.texts(draws.examples, self.example_length)
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

    def loss(self, model, batch):
        """{"paraphrase_similarity": `Term` over B pairs}."""
        similarity = model.vectors(batch["tokens"]) @ model.vectors(batch["translations"]).T
        similarity = (self.cfg.scale * similarity).masked_fill(batch["copies"], float("-inf"))
        target = torch.arange(len(similarity), device=similarity.device)
        both = [F.cross_entropy(scores, target, reduction="sum") for scores in (similarity, similarity.T)]
        return {self.name: Term(sum(both) / 2, len(target))}
