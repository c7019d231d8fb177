"""Cross-lingual word recovery (Unicoder, U4): every word of a sentence from the words of its translation.

Legend: B pairs, T and S tokens of the sentence and of its translation, C channels, N predicted tokens.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from fairseq_xl.data.framing import pad_rows, padding_mask
from fairseq_xl.objectives.base import Objective, ObjectiveConfig


@dataclass
class WordRecoveryConfig(ObjectiveConfig):
    """Options of `word_recovery`."""

    length: int = 128  # most tokens of each side (U3)


class AttentionMatrix(nn.Module):
    """A_ij = w · [x_i ; y_j ; x_i ⊙ y_j] and x^t_i = sum over j of softmax_j(A_ij) y_j; w in three parts, (3, C)."""

    def __init__(self, embed_dim: int, std: float):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(3, embed_dim).normal_(std=std))

    def forward(self, x: Tensor, y: Tensor, padding_mask: Tensor) -> Tensor:
        """Word embeddings x (B, T, C) and y (B, S, C), padding of y (B, S) bool -> x^t (B, T, C)."""
        of_x, of_y, of_both = self.weight
        scores = (x @ of_x)[:, :, None] + (y @ of_y)[:, None] + (x * of_both) @ y.transpose(1, 2)  # (B, T, S)
        weights = scores.float().masked_fill(padding_mask[:, None], float("-inf")).softmax(-1)
        return weights.type_as(y) @ y


@Objective.register
class WordRecovery(Objective):
    """Predicts every word of X from X^t, in which each word is a mixture of the words of the translation Y.

    The encoder reads X^t with the positions and the language of X; special symbols of X, <unk> too, keep their own
    embedding and are not predicted. Of those of Y the last </s> alone is not mixed in. Which side is X is drawn with
    each pair. `batch_tokens` counts both sides, of which the encoder reads one.
    """

    Config = WordRecoveryConfig
    name = "word_recovery"
    reads = "parallel"
    framed_tokens = 2

    def heads(self, model_cfg):
        """The trained w of the attention matrix."""
        return {self.name: AttentionMatrix(model_cfg.embed_dim, model_cfg.init_std)}

    def collate(self, draws, source):
        """Tokens (B, T) of X, languages (B, 1), the words of Y and their padding (B, S), predicted and targets (N,)."""
        rows, others, languages = [], [], []
        given = draws.examples, self.example_length
        for pair, codes, key in zip(source.texts(*given), source.languages(*given), draws.keys):
            first = int(key & np.uint64(1))
            rows.append(self.framing.sentence(pair[first]))
            others.append(pair[1 - first][:-1])
            languages.append([self.dictionary.language_id(codes[first])])
        pad = self.dictionary.pad()
        tokens, words = pad_rows(rows, pad), pad_rows(others, pad)
        predicted = self.dictionary.is_piece[tokens]
        return {
            "tokens": torch.from_numpy(tokens),
            "padding_mask": padding_mask(tokens, pad),
            "languages": torch.tensor(languages),
            "words": torch.from_numpy(words),
            "words_padding_mask": torch.from_numpy(words == pad),
            "is_word": torch.from_numpy(predicted),
            "predicted": torch.from_numpy(np.flatnonzero(predicted)),
            "target": torch.from_numpy(tokens[predicted]),
        }

    def loss(self, model, batch):
        """{"word_recovery": `Term` over the N words of X}."""
        x, y = model.encoder.bank(batch["tokens"]), model.encoder.bank(batch["words"])
        mixed = model.heads[self.name](x, y, batch["words_padding_mask"])
        hidden = self.encode(model, batch, vectors=torch.where(batch["is_word"][..., None], mixed, x))
        return {self.name: self.predict(model, hidden, batch)}
