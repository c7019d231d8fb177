"""From hidden states to the vocabulary. Shapes: N predicted positions, C channels, V vocabulary."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairseq_xl import compat
from fairseq_xl.modules.embeddings import Bank

_LARGE_LOGITS = 2**24  # logits (N x V) from which chunks are worth their overhead
_CHUNK_LOGITS = 2**23  # logits held at a time; each chunk also passes over the whole table ...
_SMALLEST_CHUNK = 128  # ... so it should be no fewer predictions than this


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
        """Summed negative log-likelihood, in nats, of target (N,) at hidden (N, C).

        Large batches of predictions go through torch's chunked loss, which never holds all logits (N, V).
        """
        weight, bias = self.bank.tokens.weight, self.bank.bias
        transformed = self.transform(hidden)
        if not _chunking_pays(transformed, weight):
            return F.cross_entropy(F.linear(transformed, weight, bias).float(), target, reduction="sum")
        options = nn.LinearCrossEntropyOptions(batch_chunk_size=max(_SMALLEST_CHUNK, _CHUNK_LOGITS // len(weight)))
        return F.linear_cross_entropy(transformed, weight, target, linear_bias=bias, reduction="sum", options=options)


def _chunking_pays(hidden: Tensor, weight: Tensor) -> bool:
    """Whether torch's chunked loss saves memory without losing speed or precision.

    It keeps a second gradient of the table (V, C) in place of the logits (N, V) and their gradients, so it saves
    nothing below N = C. Measured on one CPU core, float32, C = 512: at N = 1024, V = 32k, 277 MB instead of 392 and
    the same time; at N = 256, V = 250k, 1065 MB instead of 746. float32 only: its gradients are made before the loss
    is scaled, which float16 cannot take, and bfloat16 would have the sum of the losses in 8 bits.
    """
    return (
        compat.HAS_LINEAR_CROSS_ENTROPY
        and hidden.dtype == torch.float32
        and len(hidden) >= 2 * hidden.size(-1)
        and len(hidden) * len(weight) >= _LARGE_LOGITS
    )
