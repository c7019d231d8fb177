"""Output projection and cross-entropy in chunks.

Shapes: N predictions, R of them at a time, C channels, V vocabulary.
"""

import contextlib
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from fairseq_xl.modules import features
from fairseq_xl.modules.embeddings import TokenEmbeddings

#: bytes that one call of `losses` may hold: a chunk of logits and a float32 gradient of the embedding matrix (V, C).
#: Each further chunk reads the matrix and its gradient again, so larger chunks are faster
LOSS_BYTES = 2 * 10**9
#: minimum bytes of a chunk's logits, whatever the gradients leave
_MIN_CHUNK_BYTES = 2**28
#: maximum bytes of a chunk's logits on CPU: twice as much takes hardly less time (8 % for 307 predictions, V = 250,000)
_CPU_CHUNK_BYTES = 2**27
#: logits whose softmax is computed at a time, in float32: on CPU they stay in its cache
_CPU_PART, _PART = 2**20, 2**25
#: factor of logit gradients in float16, which stores probabilities near 1/250,000 with few digits and none below 6e-8;
#: hidden states are divided by it. With this factor products with weights of up to 127 do not overflow
_FLOAT16_FACTOR = 2.0**8


class OutputLayer(nn.Module):
    """Logits of every token; the projection is tied to the token embeddings.

    `plain` (XLM): h W^T + b. `dense` (XLM-R): a dense layer, GELU and LayerNorm before it. The embedding matrix W and
    the bias b belong to the token embeddings.
    """

    def __init__(self, cfg: Any, token_embeddings: TokenEmbeddings):
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
        """The part before the product with the embedding matrix: (..., C) -> (..., C)"""
        return hidden if self.dense is None else self.norm(F.gelu(self.dense(hidden)))

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., C) -> logits (..., V)"""
        matrix, bias = self.token_embeddings.output_matrix, self.token_embeddings.output_bias
        return F.linear(self.transform(hidden), matrix, bias)

    def cross_entropy(self, hidden: Tensor, target: Tensor, label_smoothing: float = 0.0) -> Tensor:
        """Summed cross-entropy, in nats, of target (N,) at hidden (N, C); arguments as in `losses`."""
        return self.losses(hidden, target, label_smoothing)[0]

    def losses(self, hidden: Tensor, target: Tensor, label_smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """Summed loss and summed negative log-likelihood, in nats, of target (N,) at hidden (N, C).

        The second one has no gradient; without label smoothing both are equal. `label_smoothing` is the probability
        that is spread evenly over all other symbols, as in fairseq's label_smoothed_cross_entropy. Never holds all
        logits (N, V).
        """
        weights = self.token_embeddings
        inputs: list[Any] = [self.transform(hidden), weights.output_matrix, weights.output_bias]
        device = hidden.device.type
        context: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
        if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
            # as a whole: autocast itself would change some products of the loss
            inputs = [tensor.to(torch.get_autocast_dtype(device)) for tensor in inputs]
            context = torch.autocast(device, enabled=False)
        with context:
            return _CrossEntropy.apply(*inputs, target, label_smoothing, torch.is_grad_enabled())


class _CrossEntropy(torch.autograd.Function):
    """Summed cross-entropy by chunks of predictions, whose gradients the forward pass computes.

    Logits and their gradients have the model's precision; the softmax and sums over chunks are in float32. The target's
    logit comes from the same product as the others, so that all are rounded the same way in 16 bits: the loss of a
    confident prediction would otherwise be mostly rounding error, and often negative.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, target: Tensor, smoothing: float, differentiable: bool
    ) -> tuple[Tensor, Tensor]:
        """Returns loss and negative log-likelihood of targets (N,), by hidden (N, C), weight (V, C) and bias (V,).

        A backward pass may follow only if `differentiable`; `smoothing` is the share of label smoothing.
        """
        exact, is_half = torch.promote_types(hidden.dtype, torch.float32), hidden.dtype == torch.float16
        needs_grad = [differentiable and needed for needed in ctx.needs_input_grad[:3]]  # hidden, weight, bias
        size, factor = _chunk_size(hidden, weight), _FLOAT16_FACTOR if is_half else 1.0
        # in 16 bits sums over chunks would lose the smaller terms, and in float16 a single product may be too small
        weight_type = exact if is_half or len(target) > size else weight.dtype
        grad_hidden = torch.empty_like(hidden, dtype=exact) if needs_grad[0] else None
        grad_weight = torch.empty_like(weight, dtype=weight_type) if needs_grad[1] else None
        grad_bias = torch.zeros_like(bias, dtype=exact) if needs_grad[2] else None
        log_probs = hidden.new_empty(2, len(target), dtype=exact)
        buffer: Any = hidden.new_empty(min(size, len(target)), len(weight))
        scaled = hidden / factor if is_half else hidden
        for first in range(0, len(target), size):
            rows = slice(first, first + size)
            logits: Any = torch.addmm(bias, hidden[rows], weight.t(), out=buffer[: len(target) - first])
            log_probs[:, rows] = _grads_(
                logits, target[rows], smoothing, factor if any(needs_grad) else None, grad_bias
            )
            if grad_hidden is not None:
                grad_hidden[rows] = logits @ weight
            if grad_weight is not None:
                _add_product(grad_weight, logits, scaled[rows], replaces=first == 0)
        logits = buffer = None  # freed
        if grad_weight is not None and not len(target):
            grad_weight.zero_()
        if grad_weight is not None and not is_half:
            grad_weight = grad_weight.to(weight.dtype)
        ctx.gradients, ctx.factors = (grad_hidden, grad_weight, grad_bias), (factor, 1.0, factor)
        ctx.dtypes = hidden.dtype, weight.dtype, bias.dtype
        nll, spread = -log_probs.sum(dim=1)
        ctx.mark_non_differentiable(nll)
        share = smoothing / max(len(weight) - 1, 1)
        return (1 - smoothing - share) * nll + share * spread if smoothing else nll.clone(), nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """Returns the gradients of hidden (N, C), weight (V, C) and bias (V,), and frees them."""
        if ctx.gradients is None:
            raise RuntimeError("this loss has no second backward pass: its gradients are freed after the first one")
        parts, ctx.gradients = zip(ctx.gradients, ctx.factors, ctx.dtypes), None
        grads = [None if grad is None else grad.mul_(gradient / factor).to(dtype) for grad, factor, dtype in parts]
        return *grads, None, None, None


def _chunk_size(hidden: Tensor, weight: Tensor) -> int:
    """Number of predictions in a chunk, for hidden (N, C) and weight (V, C): chunks of about equal sizes."""
    symbols, channels = weight.shape
    available_bytes = LOSS_BYTES - 4 * (symbols * channels + 2 * hidden.numel() + 2 * _PART)
    max_rows = max(available_bytes, _MIN_CHUNK_BYTES) // (symbols * hidden.element_size())
    if hidden.device.type == "cpu":
        max_rows = min(max_rows, _CPU_CHUNK_BYTES // (symbols * hidden.element_size()))
    chunks = -(-len(hidden) // max(max_rows, 1))
    return max(-(-len(hidden) // max(chunks, 1)), 1)


def _grads_(logits: Tensor, target: Tensor, smoothing: float, factor: float | None, grad_bias: Tensor | None) -> Tensor:
    """Replaces logits (R, V) by `factor` times the gradients of the loss; without a factor, leaves them.

    Args:
        target: (R,)
        grad_bias: (V,), gets the sum of these gradients over predictions added

    Returns: log-probabilities (2, R) of the targets, and their sums over all symbols (0 without smoothing).
    """
    exact, symbols = torch.promote_types(logits.dtype, torch.float32), logits.size(1)
    share, sums = smoothing / max(symbols - 1, 1), logits.new_zeros(2, len(target), dtype=exact)
    size = max(_CPU_PART // symbols, torch.get_num_threads()) if logits.device.type == "cpu" else _PART // symbols
    size = max(size, 1)
    for rows, targets, part_sums in zip(logits.split(size), target[:, None].split(size), sums.split(size, dim=1)):
        if rows.dtype == exact:  # a single power of each logit, which CPUs notice
            probs = torch.softmax(rows, dim=1)
            max_logit, max_log_prob = rows.amax(dim=1), probs.amax(dim=1).log()
            part_sums[0] = rows.gather(1, targets).squeeze(1) - max_logit + max_log_prob
            part_sums[1] = rows.sum(dim=1) - symbols * (max_logit - max_log_prob) if smoothing else 0
        else:
            log_probs = torch.log_softmax(rows, dim=1, dtype=exact)
            part_sums[0] = log_probs.gather(1, targets).squeeze(1)
            part_sums[1] = log_probs.sum(dim=1) if smoothing else 0
        if factor is None:
            continue
        if rows.dtype != exact:
            probs = torch.exp(log_probs, out=log_probs if smoothing or factor != 1 else rows)
            del log_probs
        if smoothing:
            probs.sub_(share)
        if probs is not rows:
            torch.mul(probs, factor, out=rows)
        del probs  # before the next ones are made
        # 1 - p is rounded, not p: a confident prediction would lose most of its gradient
        rows.scatter_(1, targets, ((part_sums[0].expm1() + smoothing) * factor).type_as(rows)[:, None])
        if grad_bias is not None:
            grad_bias += rows.sum(dim=0, dtype=exact)
    return sums


def _add_product(total: Tensor, left: Tensor, right: Tensor, replaces: bool) -> None:
    """Adds left^T right to total (V, C), or replaces total by it.

    left (R, V) and right (R, C) have the type of total, or 16 bits: then the product is computed part by part.
    """
    if total.dtype == left.dtype:
        total.addmm_(left.t(), right, beta=0 if replaces else 1)
        return
    # tensors without data, with which memory is counted, behave as on a GPU
    wide = features.HAS_PRODUCTS_IN_FLOAT32 and left.device.type in ("cuda", "meta")
    options: dict[str, Any] = {"out_dtype": total.dtype} if wide else {}
    size = max((_CPU_PART if left.device.type == "cpu" else _PART) // total.size(1), 1)
    for part, lefts in zip(total.split(size), left.split(size, dim=1)):
        product = torch.mm(lefts.t(), right, **options)
        part.copy_(product) if replaces else part.add_(product)
