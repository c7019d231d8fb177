"""Multilingual knowledge distillation of sentence embeddings (Reimers & Gurevych 2020, section 3).

Legend: B sentences, T time, C channels.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from fairseq_xl.data import Numbers
from fairseq_xl.data.corpora.base import Corpus, Texts
from fairseq_xl.data.corpora.sentences import Sentences
from fairseq_xl.data.framing import pad_rows
from fairseq_xl.data.plan.epoch_plan import BatchSpec
from fairseq_xl.errors import UserError
from fairseq_xl.io.arrays import open_matrix
from fairseq_xl.modules.pooling import POOLINGS, pool
from fairseq_xl.objectives.base import Batch, Objective, ObjectiveConfig, Sums, Term
from fairseq_xl.objectives.data_folder import DataFolder


def teacher_file(prefix: str | Path) -> Path:
    """Path of the teacher's sentence embeddings for the text `prefix`, a row for each line."""
    return Path(f"{prefix}.teacher.npy")


class TaughtSentences(Sentences):
    """Sentences of one language with the teacher's embeddings, of the sentences or of their translations.

    Raises `UserError` for a missing or damaged file of embeddings, and unless it has a row for each line.
    """

    def __init__(self, path: str | Path, language: str, symbols: int | None = None):
        super().__init__(path, language, symbols)
        self.embeddings = open_matrix(str(teacher_file(path)))
        if len(self.embeddings) != self.lines:
            raise UserError(f"{teacher_file(path)}: {len(self.embeddings)} rows, but the text has {self.lines} lines")

    def texts(self, lines: Numbers, length: int) -> list[tuple[Numbers, ...]]:
        """The sentence, int64 (t,), and the teacher's embedding, (C,), of each line."""
        return [(self.text[line], self.embeddings[line]) for line in lines.tolist()]


@dataclass
class DistillationConfig(ObjectiveConfig):
    """Options of `distillation`."""

    length: int = 128  # maximum length of a sentence, in tokens; longer ones are left out
    pooling: str = "mean"  # of the last hidden states: mean, max, or first, the first token

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("pooling", self.pooling in POOLINGS, " or ".join(POOLINGS))


@Objective.register
class Distillation(Objective):
    """Moves the embedding of each sentence to the teacher's of the sentence or of its translation.

    The loss of a sentence is the mean over channels of the squared differences. `fairseq-xl embed` writes the rows that
    it reads, DATA/xx/train.teacher.npy. With the embeddings of English sentences for both the English sentences and
    their translations, the loss is that of the paper.
    """

    Config = DistillationConfig
    name = "distillation"
    corpus_class = TaughtSentences
    language_modeling = ()

    def open(self, folder: DataFolder, split: str, trains: bool, mixes: bool = False) -> dict[str, Corpus]:
        """Opens the corpora as the base class does; adds the teacher's embeddings to the run's inputs."""
        corpora = super().open(folder, split, trains, mixes)
        for name in self.corpora(folder, split):
            folder.add_inputs(split, teacher_file(folder.part(name, [split]) / name / split))
        return corpora

    def collate(self, batch_spec: BatchSpec, corpus: Texts) -> Batch:
        """Tokens (B, T), languages (B, 1) and the teacher's embeddings, target (B, C) float32."""
        sentences, embeddings = zip(*self.texts(batch_spec, corpus))
        rows = [self.framing.sentence(sentence) for sentence in sentences]
        return self.token_inputs(pad_rows(rows, self.dictionary.pad())) | {
            "languages": self.languages(batch_spec, corpus),
            "target": torch.from_numpy(np.stack(embeddings).astype(np.float32)),
        }

    def loss(self, model: Any, batch: Batch) -> dict[str, Term]:
        """{"distillation": `Term` over B sentences}; `UserError` unless teacher and model have the same channels."""
        hidden = self.encode(model, batch).float()
        embeddings = pool(hidden, batch["padding_mask"], self.cfg.pooling)
        if embeddings.shape != batch["target"].shape:
            channels = f"{batch['target'].size(1)} channels, the model's {embeddings.size(1)}"
            raise UserError(f"{self.name}: the teacher's embeddings have {channels}")
        return {self.name: Term(F.mse_loss(embeddings, batch["target"], reduction="none").mean(1).sum(), len(hidden))}

    def values(self, sums: Sums) -> dict[str, Any]:
        """Mean squared error of each language, and of all sentences."""
        by_corpus = sums.get(self.name, {})
        total = tuple(map(sum, zip(*by_corpus.values(), strict=True)))
        named_sums = {f"{self.name}_{corpus}": pair for corpus, pair in by_corpus.items()} | {self.name: total}
        return {f"{name}_loss": round(pair[0] / pair[1], 6) for name, pair in named_sums.items() if pair and pair[1]}

    def metric_names(self, corpora: Iterable[str]) -> list[str]:
        return [f"{name}_loss" for name in (self.name, *(f"{self.name}_{corpus}" for corpus in corpora))]
