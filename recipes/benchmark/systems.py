"""The compared training steps: ours, fairseq's, transformers', and only the matrix products of a step.

Shapes: B sentences, T tokens per sentence, N predicted positions, C channels, H heads, D = C / H, V vocabulary.
"""

import math
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

PAD, FIRST_PIECE = 1, 4
LAYER_NORM_EPS = 1e-5


@dataclass(frozen=True)
class Shape:
    """Sizes of a model and of its batches."""

    layers: int = 6
    embed_dim: int = 512
    ffn_dim: int = 2048
    heads: int = 8
    vocabulary: int = 32000
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


#: default shape per device; for CUDA the shape of XLM-R base
SHAPES = {
    "cpu": Shape(),
    "cuda": Shape(layers=12, embed_dim=768, ffn_dim=3072, heads=12, sentences=32, length=512),
}
LARGE_VOCABULARY = 250_000
NANO = Shape(layers=1, embed_dim=16, ffn_dim=32, heads=2, vocabulary=100, sentences=2, length=16)


class Batch(NamedTuple):
    """Tokens (B, T), the flat predicted positions (N,), and the targets at them (N,)."""

    tokens: Tensor
    predicted: Tensor
    target: Tensor


def batch_of(shape: Shape, number: int, device: str = "cpu") -> Batch:
    """Makes batch `number`, the same in every process: uniform random tokens, 15 % of them masked and predicted."""
    generator = torch.Generator().manual_seed(number)
    tokens = torch.randint(FIRST_PIECE, shape.vocabulary - 1, (shape.sentences, shape.length), generator=generator)
    predicted = torch.randperm(shape.tokens, generator=generator)[: shape.predictions].sort().values
    target = tokens.view(-1)[predicted]
    tokens.view(-1)[predicted] = shape.vocabulary - 1
    return Batch(*(tensor.to(device) for tensor in (tokens, predicted, target)))


class System(NamedTuple):
    """A model and its loss: batch -> (loss, sample size that divides the gradient), as in fairseq's criterions."""

    model: nn.Module
    loss: Callable[[Batch], tuple[Tensor, int]]


def fairseq_xl(shape: Shape) -> System:
    """Our encoder in the form of XLM-R with our pre-training criterion."""
    from fairseq_xl import register
    from fairseq_xl.criterions.pretraining import XLPretrainingCriterion
    from fairseq_xl.models.config import EncoderConfig
    from fairseq_xl.models.encoder import XLEncoderModel
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
    dictionary, framing = SimpleNamespace(counts=np.ones(shape.vocabulary)), None  # the loss needs neither
    objective = OBJECTIVES["mlm"](OBJECTIVES["mlm"].Config(), dictionary, framing)  # type: ignore[arg-type]
    criterion = XLPretrainingCriterion(
        SimpleNamespace(
            objectives={"mlm": objective}, log_keys=[("mlm", "en")], language_modeling={"mlm"}, update_num=0
        )
    )

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

    return System(model, loss)


def fairseq(shape: Shape) -> System:
    """fairseq's RoBERTa with its criterion masked_lm."""
    from fairseq.criterions.masked_lm import MaskedLmConfig, MaskedLmLoss
    from fairseq.data import Dictionary
    from fairseq.models.roberta import RobertaModel

    dictionary = Dictionary()
    for number in range(shape.vocabulary - len(dictionary)):
        dictionary.add_symbol(f"p{number}")
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

    return System(model, loss)


def transformers(shape: Shape) -> System:
    """transformers' XLM-R with its language modeling head, which computes logits at every position."""
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

    return System(model, loss)


SYSTEMS = {"fairseq_xl": fairseq_xl, "fairseq": fairseq, "transformers": transformers}


def _everywhere(batch: Batch, ignored: int) -> Tensor:
    """The targets as (B, T), `ignored` at positions that are not predicted."""
    target = torch.full_like(batch.tokens, ignored)
    target.view(-1)[batch.predicted] = batch.target
    return target


class Trainer:
    """Takes training steps like fairseq's trainer, with fairseq's Adam, for any system."""

    def __init__(self, system: System, device: str = "cpu", optimize: bool = True):
        """`optimize` False: no update, and no state of the optimizer."""
        from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig

        self.model, self.loss = system.model.to(device).train(), system.loss
        config = FairseqAdamConfig(adam_betas="(0.9, 0.98)", adam_eps=1e-6, lr=[1e-4], tpu=False)
        self.optimizer = FairseqAdam(config, list(self.model.parameters()))
        self.optimize = optimize

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


class Products:
    """Only the matrix products of a step, into allocated buffers: a lower bound on the time of a step."""

    def __init__(self, shape: Shape, device: str = "cpu"):
        self.products = [_operands(sizes, device) for sizes in products(shape)]
        self.operations = sum(2 * math.prod(sizes) for sizes in products(shape))

    def step(self, batch: Batch) -> float:
        """Computes the products. The batch is not used; the loss is NaN."""
        for left, right, out in self.products:
            torch.bmm(left, right, out=out)
        return math.nan


def products(shape: Shape) -> Iterator[tuple[int, int, int, int]]:
    """(batch, rows, inner, columns) of every matrix product of a step, forward and backward."""
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


def _operands(sizes: tuple[int, int, int, int], device: str) -> tuple[Tensor, Tensor, Tensor]:
    batch, rows, inner, columns = sizes
    left, right = torch.randn(batch, rows, inner), torch.randn(batch, inner, columns)
    return left.to(device), right.to(device), torch.zeros(batch, rows, columns, device=device)


def with_vocabulary(shape: Shape, vocabulary: int) -> Shape:
    """Returns the shape with another vocabulary."""
    return replace(shape, vocabulary=vocabulary)
