"""From hidden states to the vocabulary. Shapes: N predicted positions, C channels, V vocabulary."""

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from fairseq_xl.modules.embeddings import Bank
from fairseq_xl.patches import features

_LARGE_LOGITS = 2**24  # logits (N x V) from which chunks are worth their overhead
_CHUNK_LOGITS = 2**23  # logits held at a time; each chunk also passes over the whole table ...
_SMALLEST_CHUNK = 128  # ... so it should be no fewer predictions than this
_SLICE_LOGITS = 2**23  # logits of a slice of the vocabulary: 32 MB, which a process gives back once they are freed


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
        return F.linear(self.transform(hidden), self.bank.output_table, self.bank.bias)

    def cross_entropy(self, hidden: Tensor, target: Tensor, label_smoothing: float = 0.0) -> Tensor:
        """Summed negative log-likelihood, in nats, of target (N,) at hidden (N, C).

        Where predictions are many, torch's chunked loss is used, which never holds all logits (N, V).

        Args:
            label_smoothing: probability that goes to all other symbols alike, as in fairseq's
                label_smoothed_cross_entropy
        """
        transformed = self.transform(hidden)
        loss = self._negative_log_likelihood(transformed, target)
        return loss + self._smoothing(transformed, target, label_smoothing) if label_smoothing else loss

    def _smoothing(self, transformed: Tensor, target: Tensor, share: float) -> Tensor:
        """What smoothing adds: share of the target's score less the mean score of the others.

        Scores are linear in the table, so that the mean is one product and no logits are needed.
        """
        weight, bias = self.bank.output_table, self.bank.bias
        direction = self.bank(target).float() - weight.float().mean(0)
        of_target = (transformed.float() * direction).sum() + (bias[target].float() - bias.float().mean()).sum()
        return share * len(weight) / (len(weight) - 1) * of_target

    def _negative_log_likelihood(self, transformed: Tensor, target: Tensor) -> Tensor:
        weight, bias = self.bank.output_table, self.bank.bias
        if not _chunking_pays(transformed, weight):
            return _CrossEntropy.apply(transformed, weight, bias, target)
        options = nn.LinearCrossEntropyOptions(batch_chunk_size=max(_SMALLEST_CHUNK, _CHUNK_LOGITS // len(weight)))
        return F.linear_cross_entropy(transformed, weight, target, linear_bias=bias, reduction="sum", options=options)


def _chunking_pays(hidden: Tensor, weight: Tensor) -> bool:
    """Whether torch's chunked loss saves memory without losing speed or precision.

    It holds a second gradient of the table (V, C) where `_CrossEntropy` holds the logits (N, V), so it saves nothing
    below N = C. float32 only: its gradients are made before the loss is scaled, which float16 cannot take, and bfloat16
    would have the sum of the losses in 8 bits.
    """
    return (
        features.HAS_LINEAR_CROSS_ENTROPY
        and hidden.dtype == torch.float32
        and len(hidden) >= 2 * hidden.size(-1)
        and len(hidden) * len(weight) >= _LARGE_LOGITS
    )


class _CrossEntropy(torch.autograd.Function):
    """Summed cross-entropy that holds one float a logit, and only until the logit's gradient is used.

    Both passes go over the vocabulary in slices; log sum exp s = top + log sum exp(s - top), with a top for each slice.
    The target's score is taken from the same logits, so that in 16 bits both are rounded alike: in the loss of a
    confident prediction their difference would else be mostly rounding, and often below 0.
    """

    @staticmethod
    def forward(ctx, hidden, weight, bias, target):
        ctx.save_for_backward(hidden, weight, target)
        ctx.width = max(_SLICE_LOGITS // max(len(hidden), 1), 1)
        ctx.powers, tops, normalisers = [], [], []
        at_target, first = hidden.new_zeros(len(hidden), dtype=torch.float32), 0
        for weights, biases in zip(weight.split(ctx.width), bias.split(ctx.width)):
            logits = torch.addmm(biases, hidden, weights.t()).float()
            place = target - first  # in this slice, for those that it holds
            found = logits.gather(1, place.clamp(0, len(weights) - 1)[:, None]).squeeze(1)
            at_target = torch.where((place >= 0) & (place < len(weights)), found, at_target)
            first += len(weights)
            tops.append(logits.amax(dim=1, keepdim=True))
            ctx.powers.append(logits.sub_(tops[-1]).exp_())
            normalisers.append(tops[-1] + ctx.powers[-1].sum(dim=1, keepdim=True).log())
        normaliser = torch.cat(normalisers, dim=1).logsumexp(dim=1, keepdim=True)
        ctx.factors = [(top - normaliser).exp() for top in tops]  # from powers to probabilities
        return (normaliser.squeeze(1) - at_target).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        if not ctx.powers:
            raise RuntimeError("the loss's gradient can be taken once: its probabilities are freed on the way")
        hidden, weight, target = ctx.saved_tensors
        by_hidden = -gradient * weight[target].float()
        by_weight, by_bias = torch.empty_like(weight), weight.new_empty(len(weight))
        parts = (tensor.split(ctx.width) for tensor in (weight, by_weight, by_bias))
        for factor, weights, by_weights, by_biases in zip(ctx.factors, *parts):
            by_logits = ctx.powers.pop(0).mul_(factor * gradient).type_as(hidden)
            by_hidden += by_logits @ weights
            torch.mm(by_logits.t(), hidden, out=by_weights)
            torch.sum(by_logits, dim=0, out=by_biases)
        by_weight.index_add_(0, target, (-gradient * hidden).type_as(weight))
        by_bias.index_add_(0, target, (-gradient).expand(len(target)).type_as(by_bias))
        return by_hidden.type_as(hidden), by_weight, by_bias, None
