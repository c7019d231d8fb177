"""Cross-lingual paraphrase classification: whether two sentences are translations (Huang et al. 2019, section 3).

Legend: B pairs, T time, C channels.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from fairseq_xl.data import Numbers
from fairseq_xl.data.corpora.base import Corpus
from fairseq_xl.data.corpora.negatives import negatives_file
from fairseq_xl.data.corpora.sentence_pairs import SentencePairs
from fairseq_xl.data.framing import pad_rows
from fairseq_xl.data.plan.epoch_plan import BatchSpec
from fairseq_xl.modules.embeddings import init_weights
from fairseq_xl.objectives.base import Batch, Objective, ObjectiveConfig, Term
from fairseq_xl.objectives.data_folder import DataFolder


@dataclass
class ParaphraseConfig(ObjectiveConfig):
    """Options of `paraphrase`."""

    length: int = 128  # maximum length of each sentence, in tokens (Huang et al. 2019, section 4)
    negatives: str = "mined"  # mined: negatives of `fairseq-xl search negatives`; random: sentences of similar length

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("negatives", self.negatives in ("mined", "random"), "mined or random")


@Objective.register
class ParaphraseClassification(Objective):
    """Classifies pairs as translations or not, from the last hidden state of the first token.

    With probability 1/2 a negative replaces the second sentence of a pair, and with probability 1/2 the second sentence
    comes first. The input is framed as in TLM. For the limits of a batch, each pair counts with its longest negative.
    """

    Config = ParaphraseConfig
    name = "paraphrase"
    corpus_class = SentencePairs
    language_modeling = ()

    def heads(self, model_cfg: Any) -> dict[str, nn.Module]:
        """The classifier: dropout and a linear layer, (C, 2)."""
        layer = nn.Linear(model_cfg.embed_dim, 2)
        init_weights(layer, model_cfg.init_std)
        return {self.name: nn.Sequential(nn.Dropout(model_cfg.dropout), layer)}

    def open(self, folder: DataFolder, split: str, trains: bool, mixes: bool = False) -> dict[str, Corpus]:
        """Opens the corpora as the base class does; adds the files of mined negatives to the run's inputs."""
        corpora = super().open(folder, split, trains, mixes)
        for name in self.corpora(folder, split) if self.mined else ():
            part = folder.part(name, (f"{split}.{name}.{code}" for code in name.split("-")))
            folder.add_inputs(split, negatives_file(part / name / f"{split}.{name}"))
        return corpora

    @property
    def mined(self) -> bool:
        return self.cfg.negatives == "mined"

    def check(self, corpus: Any) -> None:
        corpus.prepare_negatives(self.input_length.text, self.mined)

    def collated_lengths(self, examples: Numbers, sizes: Numbers, corpus: Any) -> Numbers:
        """Tokens of each pair with its longest negative, or with its translation if that is longer."""
        return corpus.sizes_with_negatives(examples, self.input_length.text, self.mined)

    def collate(self, batch_spec: BatchSpec, corpus: Any) -> Batch:
        """Tokens, positions and languages (B, T); target (B,), 1 for a translation."""
        is_translation = (batch_spec.keys & np.uint64(1)).astype(bool)
        orders = (batch_spec.keys >> np.uint64(1) & np.uint64(1)).astype(int)
        pairs = self.texts(batch_spec, corpus)
        replaced = np.flatnonzero(~is_translation)
        negatives = corpus.negatives(
            batch_spec.examples[replaced], self.input_length.text, batch_spec.keys[replaced], self.mined
        )
        for index, negative in zip(replaced, negatives):
            pairs[index] = (pairs[index][0], negative)
        rows, positions, languages = self.joined(pairs, self.language_codes(batch_spec, corpus), orders)
        tokens = pad_rows(rows, self.dictionary.pad())
        target = torch.from_numpy(is_translation.astype(np.int64))
        return self.token_inputs(tokens) | {"positions": positions, "languages": languages, "target": target}

    def loss(self, model: Any, batch: Batch) -> dict[str, Term]:
        """{"paraphrase": `Term` over B pairs}."""
        logits = model.heads[self.name](self.encode(model, batch)[:, 0])
        loss = F.cross_entropy(logits.float(), batch["target"], reduction="sum")
        return {self.name: Term(loss, len(batch["target"]))}
