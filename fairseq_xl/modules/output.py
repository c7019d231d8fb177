"""From hidden states to the vocabulary. Shapes: N predicted positions, C channels, V vocabulary."""

from torch import Tensor, nn
from torch.nn import functional as F

from fairseq_xl.modules.embeddings import Bank


class OutputLayer(nn.Module):
    """Scores of every token, tied to the token table.

    `plain` is XLM's (X1): h W^T + b. `dense` is XLM-R's: dense, GELU, LayerNorm, then the same.
    The table and the bias b are the bank's.
    """

    def __init__(self, cfg, bank: Bank):
        super().__init__()
        self._bank = [bank]  # in a list, so that it is no submodule: its owner lists its parameters
        self.dense = None
        if cfg.output_form == "dense":
            self.dense = nn.Linear(cfg.embed_dim, cfg.embed_dim)
            self.norm = nn.LayerNorm(cfg.embed_dim, cfg.layer_norm_eps)

    @property
    def bank(self) -> Bank:
        """The bank whose table and bias are used."""
        return self._bank[0]

    def transform(self, hidden: Tensor) -> Tensor:
        """What comes before the product with the table: (..., C) -> (..., C)"""
        return hidden if self.dense is None else self.norm(F.gelu(self.dense(hidden)))

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., C) -> logits (..., V)"""
        return F.linear(self.transform(hidden), self.bank.tokens.weight, self.bank.bias)

    def cross_entropy(self, hidden: Tensor, target: Tensor) -> Tensor:
        """Summed negative log-likelihood, in nats, of target (N,) at hidden (N, C), in float32."""
        return F.cross_entropy(self(hidden).float(), target, reduction="sum")
