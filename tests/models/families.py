"""Small models of all families, random batches for them, and the hidden states that their losses use."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from tiny_models import DENSE, SIZES

from fairseq_xl.data.framing import pad_rows
from fairseq_xl.models.denoising import XLDenoisingModel
from fairseq_xl.models.encoder import XLEncoderModel, XLVecoModel
from fairseq_xl.models.encoder_decoder import XLEncoderDecoderModel
from fairseq_xl.models.model_options import DenoisingConfig, EncoderConfig, EncoderDecoderConfig, NgramDecoderConfig
from fairseq_xl.models.monotrans import MonoTransConfig, XLMonoTransModel
from fairseq_xl.models.ngram_decoder import XLNgramDecoderModel
from fairseq_xl.modules.packing import find_packing, find_packings
from fairseq_xl.modules.stack import Stack
from fairseq_xl.objectives.sequence import decoder_input

PAD, EOS = 1, 2


@dataclass
class Family:
    """`build(dictionary, **options of the config)` makes the model; `states(model, batch)` its hidden states."""

    build: Callable
    states: Callable


def rows(draw, lengths):
    """Random sentences ``x </s>`` of given lengths."""
    return [np.append(torch.randint(4, 20, (length - 1,), generator=draw).numpy(), EOS) for length in lengths]


def make_batch(dictionary, lengths, target_lengths=None, seed=0):
    """2B texts of these lengths, for VECO all x and then all y, and targets; packed where there is padding."""
    draw = torch.Generator().manual_seed(seed)
    tokens = pad_rows(rows(draw, lengths), PAD)
    target = pad_rows(rows(draw, target_lengths or lengths[::-1]), PAD)
    languages = torch.arange(len(lengths))[:, None] % dictionary.num_languages
    padding = torch.from_numpy(tokens == PAD)
    return {
        "tokens": torch.from_numpy(tokens),
        "padding_mask": padding if padding.any() else None,
        "languages": languages,
        "prev_output_tokens": decoder_input(torch.from_numpy(target), dictionary.first_language + languages),
        "target": torch.from_numpy(target),
        "memory_packing": find_packing(np.roll(tokens, len(tokens) // 2, axis=0), PAD),
        **find_packings(PAD, packing=tokens, target_packing=target),
    }


def unpacked(batch):
    """The batch without its packings."""
    return batch | dict.fromkeys(("packing", "target_packing", "memory_packing"))


def encoder_states(model, batch):
    given = {key: batch[key] for key in ("languages", "padding_mask", "packing")}
    return [model.encode(batch["tokens"], **given)]


def causal_states(model, batch):
    given = {key: batch[key] for key in ("languages", "packing")}
    return [model.encode(batch["tokens"], causal=True, **given)]


def veco_states(model, batch):
    (states,) = encoder_states(model, batch)
    half = len(states) // 2
    mask = batch["padding_mask"]
    crossed = model.encode(
        batch["tokens"],
        languages=batch["languages"],
        causal=True,
        memory=states.detach().roll(half, 0),
        memory_padding_mask=None if mask is None else mask.roll(half, 0),
        packing=batch["packing"],
        memory_packing=batch["memory_packing"],
    )
    return [states, crossed]


def teacher_forced(model, batch):
    return model.teacher_forced(batch)


def translated(model, batch):
    encoder_out = model.encoder(batch["tokens"], None, batch["languages"][:, 0], batch["packing"])
    packings = {"packing": batch["target_packing"], "memory_packing": batch["packing"]}
    return [model.decoder.extract_features(batch["prev_output_tokens"], encoder_out, **packings)[0]]


def of_size(model_class, config, **fixed):
    """Function that builds an encoder of this class."""

    def build(dictionary, **options):
        cfg = config(**SIZES | {"layers": 2} | fixed | options)
        special = (dictionary.shared,) if model_class is XLMonoTransModel else ()
        return model_class(cfg, len(dictionary), PAD, dictionary.num_languages, *special)

    return build


def of_two(model_class, config, **fixed):
    """Function that builds an encoder-decoder of this class."""

    def build(dictionary, **options):
        cfg = config(**SIZES | {"encoder_layers": 2, "decoder_layers": 2} | fixed | options)
        return model_class(cfg, dictionary)

    return build


MBART = {"layer_norm": "pre", "embedding_scale": "sqrt", "position_offset": 2, "language_embeddings": "none"}
MONOTRANS = DENSE | {"adapters": 4, "language_positions": True, "embedding_noise": 0.0}
STREAMS = {"relative_buckets": 8, "relative_distance": 12, "language_embeddings": "none"}
FAMILIES = {
    "encoder": Family(of_size(XLEncoderModel, EncoderConfig), encoder_states),
    "causal": Family(of_size(XLEncoderModel, EncoderConfig), causal_states),
    "veco": Family(of_size(XLVecoModel, EncoderConfig), veco_states),
    "monotrans": Family(of_size(XLMonoTransModel, MonoTransConfig, **MONOTRANS), encoder_states),
    "denoising": Family(of_two(XLDenoisingModel, DenoisingConfig), teacher_forced),
    "streams": Family(of_two(XLNgramDecoderModel, NgramDecoderConfig, **STREAMS), teacher_forced),
    "translation": Family(of_two(XLEncoderDecoderModel, EncoderDecoderConfig, **MBART), translated),
}


def stacks(model):
    """The stacks of layers of a model."""
    return [module for module in model.modules() if isinstance(module, Stack)]


def kept_states(family, model, batch):
    """The hidden states and a mask of those that are not of padding, for each output of a model."""
    for hidden in FAMILIES[family].states(model, batch):
        decodes = hidden.shape[:2] != batch["tokens"].shape or family in ("denoising", "streams", "translation")
        yield hidden, (batch["target"] if decodes else batch["tokens"]).ne(PAD)


def loss_of(family, model, batch):
    """A loss that depends on every hidden state that is not of padding."""
    total = 0.0
    for hidden, kept in kept_states(family, model, batch):
        weights = torch.linspace(-1, 1, hidden.size(2), device=hidden.device, dtype=hidden.dtype)
        total = total + torch.where(kept[..., None], hidden * weights, 0).sin().sum() / kept.sum()
    return total
