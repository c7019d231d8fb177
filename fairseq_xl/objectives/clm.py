"""Causal language modeling, CLM (Lample & Conneau 2019, section 3.2).

Legend: B batch, T time, V vocabulary, N predicted tokens.
"""

from typing import Any

import torch
from torch import Tensor

from fairseq_xl.data.corpora.base import Texts
from fairseq_xl.data.corpora.token_stream import TokenStream
from fairseq_xl.data.framing import pad_rows
from fairseq_xl.data.plan.epoch_plan import BatchSpec
from fairseq_xl.modules.packing import find_packing
from fairseq_xl.objectives.base import Batch, BlockConfig, Objective, Term


@Objective.register
class CLM(Objective):
    """P(w_t | w_<t) on blocks of a stream in one language; no state is carried over between batches."""

    Config = BlockConfig
    name = "clm"
    corpus_class = TokenStream

    def collate(self, batch_spec: BatchSpec, corpus: Texts) -> Batch:
        """Tokens (B, T-1), languages (B, 1), predicted positions and targets (N,), the next tokens."""
        rows = [self.framing.sentence(block) for (block,) in self.texts(batch_spec, corpus)]
        whole = torch.from_numpy(pad_rows(rows, self.dictionary.pad()))
        tokens, following = whole[:, :-1].contiguous(), whole[:, 1:]
        is_token = following.ne(self.dictionary.pad())
        return {
            "tokens": tokens,
            "padding_mask": None,  # padding is on the right: the causal mask hides it
            "packing": find_packing(tokens.numpy(), self.dictionary.pad()),
            "languages": self.languages(batch_spec, corpus),
            "predicted_positions": is_token.flatten().nonzero().squeeze(1),
            "target": following[is_token],
        }

    def loss(self, model: Any, batch: Batch) -> dict[str, Term]:
        """{"clm": `Term` over the N predicted tokens}."""
        return {self.name: self.predict(model, self._hidden(model, batch), batch)}

    def net_input(self, batch: Batch) -> dict[str, Any]:
        """The entries of a sample of fairseq-eval-lm, whose model computes the `scores`."""
        target = torch.full_like(batch["tokens"], self.dictionary.pad())
        target.view(-1)[batch["predicted_positions"]] = batch["target"]
        inputs = {"compute": self.scores, "batch": batch}
        return {"net_input": inputs, "target": target, "batch": {}, "ntokens": len(batch["target"])}

    def scores(self, model: Any, batch: Batch) -> tuple[Tensor, None]:
        """Logits (B, T-1, V) of the next token at every position, and None, as fairseq's decoders return them."""
        return model.output(self._hidden(model, batch)), None

    def _hidden(self, model: Any, batch: Batch) -> Tensor:
        return model.encode(batch["tokens"], languages=batch["languages"], causal=True, packing=batch["packing"])
