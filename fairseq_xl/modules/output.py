"""From hidden states to the vocabulary. Shapes: N predicted positions, C channels, V vocabulary."""

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from fairseq_xl.modules.embeddings import TokenEmbeddings
from fairseq_xl.patches import features

_LARGE_LOGITS = 2**24  # logits (N x V) from which on chunks are worth their overhead
_CHUNK_LOGITS = 2**23  # logits held at a time
_SMALLEST_CHUNK = 128  # predictions: each chunk reads the whole table
_SLICE_LOGITS = 2**23  # logits of a slice of the vocabulary: 32 MB, which a process returns once they are freed


class OutputLayer(nn.Module):
    """Logits of every token; the projection is tied to the token embeddings.

    `plain` is XLM's: h W^T + b. `dense` is XLM-R's: dense, GELU, LayerNorm, then the same.
    The table W and the bias b belong to the token embeddings.
    """

    def __init__(self, cfg, token_embeddings: TokenEmbeddings):
        super().__init__()
        self._token_embeddings = [token_embeddings]  # in a list, so that it is not a submodule: the encoder has it
        self.dense = None
        if cfg.output_form == "dense":
            self.dense = nn.Linear(cfg.embed_dim, cfg.embed_dim)
            self.norm = nn.LayerNorm(cfg.embed_dim, cfg.layer_norm_eps)

    @property
    def token_embeddings(self) -> TokenEmbeddings:
        """The token embeddings, with the output bias."""
        return self._token_embeddings[0]

    def transform(self, hidden: Tensor) -> Tensor:
        """The part before the product with the table: (..., C) -> (..., C)"""
        return hidden if self.dense is None else self.norm(F.gelu(self.dense(hidden)))

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., C) -> logits (..., V)"""
        table, bias = self.token_embeddings.output_table, self.token_embeddings.output_bias
        return F.linear(self.transform(hidden), table, bias)

    def cross_entropy(self, hidden: Tensor, target: Tensor, label_smoothing: float = 0.0) -> Tensor:
        """Summed negative log-likelihood, in nats, of target (N,) at hidden (N, C).

        For many predictions it uses torch's chunked loss, which never holds all logits (N, V).

        Args:
            label_smoothing: probability that is spread evenly over all other symbols, as in fairseq's
                label_smoothed_cross_entropy
        """
        transformed = self.transform(hidden)
        loss = self._negative_log_likelihood(transformed, target)
        return loss + self._smoothing(transformed, target, label_smoothing) if label_smoothing else loss

    def _smoothing(self, transformed: Tensor, target: Tensor, share: float) -> Tensor:
        """The term that smoothing adds: `share` times the target's logit minus the mean logit of the others.

        Logits are linear in the table, so the mean is one product and needs no logits.
        """
        weight, bias = self.token_embeddings.output_table, self.token_embeddings.output_bias
        direction = self.token_embeddings(target).float() - weight.float().mean(0)
        of_target = (transformed.float() * direction).sum() + (bias[target].float() - bias.float().mean()).sum()
        return share * len(weight) / (len(weight) - 1) * of_target

    def _negative_log_likelihood(self, transformed: Tensor, target: Tensor) -> Tensor:
        weight, bias = self.token_embeddings.output_table, self.token_embeddings.output_bias
        if not _chunking_pays(transformed, weight):
            return _CrossEntropy.apply(transformed, weight, bias, target)
        options = nn.LinearCrossEntropyOptions(batch_chunk_size=max(_SMALLEST_CHUNK, _CHUNK_LOGITS // len(weight)))
        return F.linear_cross_entropy(transformed, weight, target, linear_bias=bias, reduction="sum", options=options)


def _chunking_pays(hidden: Tensor, weight: Tensor) -> bool:
    """Whether torch's chunked loss saves memory without losing speed or precision.

    It holds a second gradient of the table (V, C), `_CrossEntropy` the logits (N, V): below N = C it saves nothing.
    float32 only: it computes gradients before the loss is scaled, which overflows or underflows in float16, and in
    bfloat16 it would sum the losses in 8 bits.
    """
    return (
        features.HAS_LINEAR_CROSS_ENTROPY
        and hidden.dtype == torch.float32
        and len(hidden) >= 2 * hidden.size(-1)
        and len(hidden) * len(weight) >= _LARGE_LOGITS
    )


class _CrossEntropy(torch.autograd.Function):
    """Summed cross-entropy that holds one float per logit, and only until the logit's gradient is used.

    Both passes go over the vocabulary in slices; log sum exp s = top + log sum exp(s - top), with a top for each slice.
    The target's logit comes from the same slices, so both are rounded the same way in 16 bits: the loss of a confident
    prediction would otherwise be mostly rounding error, and often negative.
    """

    @staticmethod
    def forward(ctx, hidden, weight, bias, target):
        """Returns the loss of targets (N,) given hidden (N, C), weight (V, C) and bias (V,)."""
        ctx.save_for_backward(hidden, weight, target)
        ctx.width = max(_SLICE_LOGITS // max(len(hidden), 1), 1)
        ctx.powers, tops, normalizers = [], [], []
        at_target, first = hidden.new_zeros(len(hidden), dtype=torch.float32), 0
        for weights, biases in zip(weight.split(ctx.width), bias.split(ctx.width)):
            logits = torch.addmm(biases, hidden, weights.t()).float()
            place = target - first  # in this slice, for those that it holds
            found = logits.gather(1, place.clamp(0, len(weights) - 1)[:, None]).squeeze(1)
            at_target = torch.where((place >= 0) & (place < len(weights)), found, at_target)
            first += len(weights)
            tops.append(logits.amax(dim=1, keepdim=True))
            ctx.powers.append(logits.sub_(tops[-1]).exp_())
            normalizers.append(tops[-1] + ctx.powers[-1].sum(dim=1, keepdim=True).log())
        normalizer = torch.cat(normalizers, dim=1).logsumexp(dim=1, keepdim=True)
        ctx.factors = [(top - normalizer).exp() for top in tops]  # from powers to probabilities
        return (normalizer.squeeze(1) - at_target).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        """Returns the gradients of hidden (N, C), weight (V, C) and bias (V,); frees the probabilities."""
        if not ctx.powers:
            raise RuntimeError("the gradient of the loss can be computed once: the probabilities are freed on the way")
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
