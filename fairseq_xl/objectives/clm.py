"""Causal language modelling (XLM section 3.2, X4)."""

import torch

from fairseq_xl.data.framing import pad_rows
from fairseq_xl.objectives.base import Objective, ObjectiveConfig


@Objective.register
class CLM(Objective):
    """P(w_t | w_<t) on blocks of a stream in one language; no state is carried over from batch to batch."""

    Config = ObjectiveConfig
    name = "clm"
    reads = "monolingual"

    def collate(self, draws, source):
        """Tokens (B, T-1), language (B, 1), predicted positions and targets (N,): each token predicts the next."""
        rows = [self.framing.sentence(block) for (block,) in source.texts(draws.examples, self.example_length)]
        whole = torch.from_numpy(pad_rows(rows, self.dictionary.pad()))
        tokens, following = whole[:, :-1], whole[:, 1:]
        predicted = following.ne(self.dictionary.pad())
        return {
            "tokens": tokens.contiguous(),
            "padding_mask": None,  # padding is on the right: no predicted position sees it
            "languages": self.languages(draws, source),
            "predicted": predicted.flatten().nonzero().squeeze(1),
            "target": following[predicted],
        }

    def loss(self, model, batch):
        """{"clm": `Term` over the N predicted tokens}."""
        return {self.name: self.predict(model, self._hidden(model, batch), batch)}

    def scores(self, model, batch):
        """Logits (B, T-1, V) of the next token at every position, and None: what fairseq's decoders return."""
        return model.output(self._hidden(model, batch)), None

    def _hidden(self, model, batch):
        return model.encode(batch["tokens"], languages=batch["languages"], causal=True)
