"""The compared training steps: those of this package, fairseq and transformers, and only their matrix products.

Each case has a shape and a precision: float32, or bfloat16 with float32 copies of the weights (fairseq's --bf16).

Shapes: B sentences, T tokens per sentence, N predicted positions, C channels, H heads, D = C / H, V vocabulary.
"""

import math
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from omegaconf import OmegaConf
from torch import Tensor, nn

PAD, FIRST_PIECE = 1, 4
LAYER_NORM_EPS = 1e-5


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a model."""

    layers: int = 6  # of an encoder, and of a decoder
    embed_dim: int = 512
    ffn_dim: int = 2048
    heads: int = 8
    vocabulary: int = 32000


@dataclass(frozen=True)
class Shape(ModelShape):
    """Sizes of a model and of its batches in training."""

    sentences: int = 8
    length: int = 256
    dropout: float = 0.1  # of channels and of attention weights
    predicted: float = 0.15  # share of the tokens

    @property
    def tokens(self) -> int:
        """Tokens of a batch, B T."""
        return self.sentences * self.length

    @property
    def predictions(self) -> int:
        """Predicted positions of a batch, N."""
        return round(self.tokens * self.predicted)


AnyShape = TypeVar("AnyShape", bound=ModelShape)


def changed(shape: AnyShape, changes: list[str]) -> AnyShape:
    """Returns the shape with changes such as ``layers=12``; exits with a message for an unknown name.

    `embed_dim` sets `ffn_dim` to four times its value, unless the changes have both.
    """
    types: dict[str, Any] = {field.name: field.type for field in fields(shape)}
    values = dict(change.split("=", 1) for change in changes)
    if unknown := sorted(values.keys() - types):
        sys.exit(f"benchmark: --shape {unknown[0]}: expected one of {', '.join(types)}")
    sizes = {name: types[name](value) for name, value in values.items()}
    if "embed_dim" in sizes:
        sizes.setdefault("ffn_dim", 4 * sizes["embed_dim"])
    return replace(shape, **sizes)


LARGE_VOCABULARY = 250_000
_BASE = Shape(layers=12, embed_dim=768, ffn_dim=3072, heads=12, sentences=64, length=512)  # XLM-R base
#: shapes by device, the default first
SHAPES = {"cpu": [Shape()], "cuda": [_BASE, replace(_BASE, vocabulary=LARGE_VOCABULARY), Shape(sentences=256)]}
PRECISIONS = {"cpu": ["float32"], "cuda": ["bfloat16", "float32"]}
NANO = Shape(layers=1, embed_dim=16, ffn_dim=32, heads=2, vocabulary=100, sentences=2, length=16)


class Batch(NamedTuple):
    """Tokens (B, T), the flat predicted positions (N,), and the targets at them (N,)."""

    tokens: Tensor
    predicted: Tensor
    target: Tensor


def batch_of(shape: Shape, index: int, device: str = "cpu") -> Batch:
    """Makes batch `index`, the same in every process: uniform random tokens, 15 % of them masked and predicted."""
    generator = torch.Generator().manual_seed(index)
    tokens = torch.randint(FIRST_PIECE, shape.vocabulary - 1, (shape.sentences, shape.length), generator=generator)
    predicted = torch.randperm(shape.tokens, generator=generator)[: shape.predictions].sort().values
    target = tokens.view(-1)[predicted]
    tokens.view(-1)[predicted] = shape.vocabulary - 1
    return Batch(*(tensor.to(device) for tensor in (tokens, predicted, target)))


class System(NamedTuple):
    """A model, its loss and its optimizer.

    `loss`: batch -> (loss, sample size that divides the gradient), as in fairseq's criterions. `output_loss`: hidden
    states (N, C) of the predicted positions and their targets (N,) -> summed loss of the output layer.
    """

    model: nn.Module
    loss: Callable[[Batch], tuple[Tensor, int]]
    output_loss: Callable[[Tensor, Tensor], Tensor]
    optimizer: str = "adam"  # fairseq's


def fairseq_xl(shape: Shape, backend: str | None = None) -> System:
    """Builds our encoder with XLM-R's settings, our pre-training criterion and `xl_adam`.

    With a backend of torch.compile its layers are compiled, as with --compile.
    """
    from fairseq_xl import register
    from fairseq_xl.criterions.combined import XLPretrainingCriterion
    from fairseq_xl.models.encoder import XLEncoderModel
    from fairseq_xl.models.model_options import EncoderConfig
    from fairseq_xl.objectives import OBJECTIVES

    register()
    cfg = EncoderConfig(
        layers=shape.layers,
        embed_dim=shape.embed_dim,
        ffn_dim=shape.ffn_dim,
        heads=shape.heads,
        dropout=shape.dropout,
        attention_dropout=shape.dropout,
        max_positions=shape.length,
        layer_norm_eps=LAYER_NORM_EPS,
        language_embeddings="none",
        output_form="dense",
        position_offset=2,
    )
    model = XLEncoderModel(cfg, shape.vocabulary, PAD, num_languages=0)
    model.encoder.layers.backend = backend
    dictionary, framing = SimpleNamespace(counts=np.ones(shape.vocabulary)), None  # the loss needs neither
    objective = OBJECTIVES["mlm"](OBJECTIVES["mlm"].Config(), dictionary, framing)  # type: ignore[arg-type]
    criterion = XLPretrainingCriterion(SimpleNamespace())
    criterion.set_objectives({"mlm": objective}, {"mlm": ["en"]})

    def loss(batch: Batch) -> tuple[Tensor, int]:
        inputs = {
            "tokens": batch.tokens,
            "predicted_positions": batch.predicted,
            "target": batch.target,
            "languages": None,
            "padding_mask": None,
        }
        sample = {
            "objective": "mlm",
            "corpus": "en",
            "batch": inputs,
            "ntokens": shape.tokens,
            "nsentences": shape.sentences,
        }
        return criterion(model, sample)[:2]

    return System(model, loss, model.output.cross_entropy, "xl_adam")


def fairseq(shape: Shape) -> System:
    """Builds fairseq's RoBERTa with its criterion masked_lm."""
    from fairseq.criterions.masked_lm import MaskedLmConfig, MaskedLmLoss
    from fairseq.data import Dictionary
    from fairseq.models.roberta import RobertaModel
    from fairseq.modules import cross_entropy

    dictionary = Dictionary()
    for i in range(shape.vocabulary - len(dictionary)):
        dictionary.add_symbol(f"p{i}")
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    args = Namespace(
        encoder_layers=shape.layers,
        encoder_embed_dim=shape.embed_dim,
        encoder_ffn_embed_dim=shape.ffn_dim,
        encoder_attention_heads=shape.heads,
        dropout=shape.dropout,
        attention_dropout=shape.dropout,
        max_positions=shape.length,
        tokens_per_sample=shape.length,
    )
    model = RobertaModel.build_model(args, task)
    criterion = MaskedLmLoss(MaskedLmConfig(tpu=False), task)

    def loss(batch: Batch) -> tuple[Tensor, int]:
        sample = {
            "net_input": {"src_tokens": batch.tokens},
            "target": _everywhere(batch, PAD),
            "ntokens": shape.tokens,
            "nsentences": shape.sentences,
        }
        return criterion(model, sample)[:2]

    def output_loss(hidden: Tensor, target: Tensor) -> Tensor:
        return cross_entropy(model.encoder.lm_head(hidden), target, reduction="sum", ignore_index=PAD)

    return System(model, loss, output_loss)


def transformers(shape: Shape) -> System:
    """Builds transformers' XLM-R with its language modeling head, which computes logits at every position."""
    from transformers import XLMRobertaConfig, XLMRobertaForMaskedLM

    config = XLMRobertaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.embed_dim,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=shape.ffn_dim,
        max_position_embeddings=shape.length + 2,
        hidden_dropout_prob=shape.dropout,
        attention_probs_dropout_prob=shape.dropout,
        type_vocab_size=1,
        layer_norm_eps=LAYER_NORM_EPS,
        pad_token_id=PAD,
    )
    model = XLMRobertaForMaskedLM(config)

    def loss(batch: Batch) -> tuple[Tensor, int]:
        return model(batch.tokens, labels=_everywhere(batch, -100)).loss, 1

    def output_loss(hidden: Tensor, target: Tensor) -> Tensor:
        return nn.functional.cross_entropy(model.lm_head(hidden).float(), target, reduction="sum")

    return System(model, loss, output_loss)


SYSTEMS = {
    "fairseq_xl": fairseq_xl,
    "fairseq_xl --compile": fairseq_xl,
    "fairseq": fairseq,
    "transformers": transformers,
}
COMPILED = {"fairseq_xl --compile"}  # systems with a backend


def _linear_cross_entropy(hidden: Tensor, weight: Tensor, bias: Tensor, target: Tensor) -> Tensor:
    options = nn.LinearCrossEntropyOptions()  # without options it is not chunked
    return nn.functional.linear_cross_entropy(
        hidden, weight, target, linear_bias=bias, reduction="sum", options=options
    )


def _liger(hidden: Tensor, weight: Tensor, bias: Tensor, target: Tensor) -> Tensor:
    module: Any = import_module("liger_kernel.transformers.fused_linear_cross_entropy")  # of the extra `liger`
    summed: Tensor = module.LigerFusedLinearCrossEntropyLoss(reduction="sum")(weight, hidden, target, bias)
    return summed


#: other chunked losses in place of ours: hidden states (N, C), matrix (V, C), bias (V,), targets (N,) -> summed loss
OUTPUT_LOSSES = {"torch linear_cross_entropy": _linear_cross_entropy, "liger-kernel": _liger}


def available_losses(device: str) -> list[str]:
    """Lists the `OUTPUT_LOSSES` that can be measured: torch has one from 2.13 on, liger-kernel needs CUDA."""
    is_available = {
        "torch linear_cross_entropy": hasattr(nn.functional, "linear_cross_entropy"),
        "liger-kernel": device == "cuda" and find_spec("liger_kernel") is not None,
    }
    return [loss for loss in OUTPUT_LOSSES if is_available[loss]]


def with_loss(name: str, shape: Shape) -> System:
    """Builds our output layer with one of `OUTPUT_LOSSES`; its one-layer encoder is not measured."""
    system = fairseq_xl(replace(shape, layers=1))
    output: Any = system.model.output

    def output_loss(hidden: Tensor, target: Tensor) -> Tensor:
        embeddings = output.token_embeddings
        return OUTPUT_LOSSES[name](output.transform(hidden), embeddings.output_matrix, embeddings.output_bias, target)

    return system._replace(output_loss=output_loss)


def _everywhere(batch: Batch, ignored: int) -> Tensor:
    """Returns the targets as (B, T), `ignored` at positions that are not predicted."""
    target = torch.full_like(batch.tokens, ignored)
    target.view(-1)[batch.predicted] = batch.target
    return target


class Trainer:
    """Takes training steps like fairseq's trainer, for any system.

    Args:
        system: the model, its loss and its optimizer.
        device: cpu or cuda.
        optimize: whether to make updates; without them the optimizer has no state.
        precision: float32 or bfloat16.
    """

    def __init__(self, system: System, device: str = "cpu", optimize: bool = True, precision: str = "float32"):
        self.model, self.system = system.model.to(device).train(), system
        self.loss, self.optimize, self.device = system.loss, optimize, device
        if precision == "bfloat16":
            self.model.bfloat16()
        self.optimizer = _optimizer(system.optimizer, list(self.model.parameters()), precision)

    def step(self, batch: Batch) -> float:
        """Forward, backward, clipping and update; returns the loss in nats per prediction."""
        self.optimizer.zero_grad()
        loss, sample_size = self.loss(batch)
        self.optimizer.backward(loss)
        self.optimizer.multiply_grads(1 / sample_size)
        self.optimizer.clip_grad_norm(1.0)
        if self.optimize:
            self.optimizer.step()
        return float(loss.detach() / sample_size)

    def output_step(self, batch: Batch) -> float:
        """Forward and backward pass of the output layer and its loss on random states; returns nats per prediction."""
        weights = next(weights for weights in self.model.parameters() if weights.dim() == 2)  # (V, C)
        hidden = weights.new_empty(len(batch.target), weights.size(1)).normal_().requires_grad_()
        self.model.zero_grad(set_to_none=True)
        loss = self.system.output_loss(hidden, batch.target)
        loss.backward()
        return float(loss.detach() / len(batch.target))


def _optimizer(name: str, parameters: list[nn.Parameter], precision: str) -> Any:
    """fairseq's `adam`, or `xl_adam` as in a training; in bfloat16 on float32 copies of the parameters."""
    from fairseq import optim
    from fairseq.optim import FP16Optimizer

    choice = {"_name": name, "adam_betas": "(0.9, 0.98)", "adam_eps": 1e-6, "weight_decay": 0.0, "lr": [1e-4]}
    choice |= {"tpu": False, "use_old_adam": False, "fp16_adam_stats": False} if name == "adam" else {}
    common = dict.fromkeys(("memory_efficient_fp16", "memory_efficient_bf16", "fp16", "amp"), False)
    cfg = OmegaConf.create(
        {
            "optimizer": choice,
            "common": common | {"bf16": precision == "bfloat16", "fp16_scale_window": 1, "tpu": False},
            "optimization": {"use_bmuf": False},
            "distributed_training": {"ddp_backend": "pytorch_ddp"},
        }
    )
    if name == "xl_adam":
        from fairseq_xl.optimizers import precision as precisions

        return precisions.build(cfg, parameters)
    if precision == "bfloat16":
        return FP16Optimizer.build_optimizer(cfg, parameters)
    return optim.build_optimizer(cfg.optimizer, parameters)


class Products:
    """Only the matrix products of a step, into allocated buffers; without fused attention."""

    def __init__(self, shape: Shape, device: str = "cpu", precision: str = "float32"):
        kind = getattr(torch, precision)
        self.products = [_operands(sizes, device, kind) for sizes in products(shape)]

    def step(self, batch: Batch) -> float:
        """Computes the products. The batch is not used; the loss is NaN."""
        for left, right, out in self.products:
            torch.bmm(left, right, out=out)
        return math.nan


def products(shape: Shape) -> Iterator[tuple[int, int, int, int]]:
    """Yields (batch, rows, inner, columns) of every matrix product of a step, forward and backward."""
    C, B, H, T = shape.embed_dim, shape.sentences, shape.heads, shape.length
    linears: list[tuple[int, int, int]] = []
    for _ in range(shape.layers):
        linears += [(shape.tokens, C, columns) for columns in (3 * C, C, shape.ffn_dim)]
        linears.append((shape.tokens, shape.ffn_dim, C))
    linears += [(shape.predictions, C, C), (shape.predictions, C, shape.vocabulary)]
    for rows, inner, columns in linears:
        yield 1, rows, inner, columns  # y = x W
        yield 1, rows, columns, inner  # the gradient with respect to x
        yield 1, inner, rows, columns  # the gradient with respect to W
    for _ in range(shape.layers):
        for _ in range(2):  # attention scores, and the gradient of attention weights
            yield B * H, T, C // H, T
        for _ in range(4):  # weighted values, and the gradients of values, queries and keys
            yield B * H, T, T, C // H


def _operands(sizes: tuple[int, int, int, int], device: str, kind: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    batch, rows, inner, columns = sizes
    options: Any = {"device": device, "dtype": kind}
    left, right = torch.randn(batch, rows, inner, **options), torch.randn(batch, inner, columns, **options)
    return left, right, torch.zeros(batch, rows, columns, **options)


def flops(shape: Shape) -> int:
    """Counts the floating-point operations of the matrix products of a step."""
    return sum(2 * math.prod(sizes) for sizes in products(shape))
