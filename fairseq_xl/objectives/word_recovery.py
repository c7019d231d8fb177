"""Cross-lingual word recovery: words of a sentence from those of its translation (Huang et al. 2019, section 3).

Legend: B pairs, T and S tokens of the sentence and of its translation, C channels, N predicted tokens.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fairseq_xl.data.corpora.base import Texts
from fairseq_xl.data.corpora.sentence_pairs import SentencePairs
from fairseq_xl.data.framing import pad_rows
from fairseq_xl.data.plan.epoch_plan import BatchSpec
from fairseq_xl.objectives.base import Batch, Objective, ObjectiveConfig, Term


@dataclass
class WordRecoveryConfig(ObjectiveConfig):
    """Options of `word_recovery`."""

    length: int = 128  # maximum length of each sentence, in tokens (Huang et al. 2019, section 4)


class AttentionMatrix(nn.Module):
    """A_ij = w · [x_i ; y_j ; x_i ⊙ y_j], x^t_i = Σ_j softmax_j(A_ij) y_j; `weight`: the three parts of w, (3, C)."""

    def __init__(self, embed_dim: int, std: float):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(3, embed_dim).normal_(std=std))

    def forward(self, x: Tensor, y: Tensor, padding_mask: Tensor) -> Tensor:
        """Mixes the embeddings y (B, S, C), padding (B, S) bool, for each token of x (B, T, C): x^t (B, T, C)."""
        w_x, w_y, w_xy = self.weight
        scores = (x @ w_x)[:, :, None] + (y @ w_y)[:, None] + (x * w_xy) @ y.transpose(1, 2)  # (B, T, S)
        weights = scores.float().masked_fill(padding_mask[:, None], float("-inf")).softmax(-1)
        return weights.type_as(y) @ y


@Objective.register
class WordRecovery(Objective):
    """Predicts each word of X from a mixture of the words of its translation Y.

    The encoder reads the mixtures, X^t, in place of the words, with the positions and the language of X. Special
    symbols of X and ``<unk>`` have their embeddings and are not predicted. The mixtures exclude the last ``</s>`` of Y.
    Either sentence of a pair is X with probability 1/2. `batch_tokens` counts both, although the encoder reads one.
    """

    Config = WordRecoveryConfig
    name = "word_recovery"
    corpus_class = SentencePairs

    def heads(self, model_cfg: Any) -> dict[str, nn.Module]:
        return {self.name: AttentionMatrix(model_cfg.embed_dim, model_cfg.init_std)}

    def collate(self, batch_spec: BatchSpec, corpus: Texts) -> Batch:
        """Tokens (B, T) of X, languages (B, 1), words of Y and their padding (B, S), positions and targets (N,)."""
        rows, translations, languages = [], [], []
        pairs, pair_codes = self.texts(batch_spec, corpus), self.language_codes(batch_spec, corpus)
        for pair, codes, key in zip(pairs, pair_codes, batch_spec.keys):
            first = int(key & np.uint64(1))
            rows.append(self.framing.sentence(pair[first]))
            translations.append(pair[1 - first][:-1])
            languages.append([self.dictionary.language_id(codes[first])])
        pad = self.dictionary.pad()
        tokens, words = pad_rows(rows, pad), pad_rows(translations, pad)
        is_word = self.dictionary.is_piece[tokens]
        return self.token_inputs(tokens) | {
            "languages": torch.tensor(languages),
            "words": torch.from_numpy(words),
            "words_padding_mask": torch.from_numpy(words == pad),
            "is_word": torch.from_numpy(is_word),
            "predicted_positions": torch.from_numpy(np.flatnonzero(is_word)),
            "target": torch.from_numpy(tokens[is_word]),
        }

    def loss(self, model: Any, batch: Batch) -> dict[str, Term]:
        """{"word_recovery": `Term` over the N words of X}."""
        x, y = model.encoder.token_embeddings(batch["tokens"]), model.encoder.token_embeddings(batch["words"])
        mixed = model.heads[self.name](x, y, batch["words_padding_mask"])
        hidden = self.encode(model, batch, inputs_embeds=torch.where(batch["is_word"][..., None], mixed, x))
        return {self.name: self.predict(model, hidden, batch)}
