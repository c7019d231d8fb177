"""Parts of a model as functions of named tensors, for `torch.onnx`.

Shapes: B batch, T time, S source time, t earlier target time, C channels, H heads, D = C / H, V vocabulary, K outputs.
"""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from fairseq_xl.errors import UserError
from fairseq_xl.models.encoder import Encoder
from fairseq_xl.modules.attention import Cache, LayerCache

Axes = tuple[str | int, ...]  # sizes of a tensor; a name stands for any size
FIRST_PIECE = 4  # ids of pieces begin after <s> <pad> </s> <unk>
SEGMENTS = 2
KINDS = ("past", "memory")  # caches of self-attention and of cross-attention, in the order of `LayerCache`


def only_objective(task: Any) -> Any:
    """The labelled objective of a model with one fine-tuned head; None if there is none, or several."""
    labelled = [*getattr(task, "labelled", {}).values()]
    return labelled[0] if len(labelled) == 1 else None


class Graph(nn.Module):
    """A function of tensors to tensors, both {name: axes}; `largest`: {axis: maximum size}, where there is any."""

    model: Any

    def __init__(self, model: nn.Module, inputs: dict[str, Axes], outputs: dict[str, Axes], largest: dict[str, int]):
        super().__init__()
        self.model, self.inputs, self.outputs, self.largest = model, inputs, outputs, largest

    def example(self, sizes: dict[str, int], ranges: dict[str, int], generator: torch.Generator) -> list[Tensor]:
        """Random inputs with padding on the right in all rows but the first.

        `sizes` are {name of an axis: size}, `ranges` {"tokens": V, "languages": their number, "pad": id of <pad>}.
        """
        inputs = {}
        for name, axes in self.inputs.items():
            shape = [axis if isinstance(axis, int) else sizes[axis] for axis in axes]
            if name == "tokens":
                inputs[name] = torch.randint(FIRST_PIECE, ranges["tokens"], shape, generator=generator)
            elif name == "padding_mask":
                lengths = torch.randint(1, shape[1] + 1, (shape[0], 1), generator=generator)
                lengths[0] = shape[1]
                inputs[name] = torch.arange(shape[1]) >= lengths
            elif name == "languages":
                inputs[name] = torch.randint(ranges["languages"], shape, generator=generator)
            elif name == "segments":
                inputs[name] = torch.randint(SEGMENTS, shape, generator=generator).cummax(dim=1).values
            else:
                inputs[name] = torch.randn(shape, generator=generator)
        tokens, padding = inputs["tokens"], inputs["padding_mask"]
        if tokens.shape == padding.shape:
            inputs["tokens"] = tokens.masked_fill(padding, ranges["pad"])
        return list(inputs.values())


class EncoderGraph(Graph):
    """An encoder, and a function `read` of it and a batch (arguments of `model.encode`) to `outputs`, {name: axes}."""

    def __init__(self, model: Any, read: Callable[[Any, dict[str, Tensor]], Tensor], outputs: dict[str, Axes]):
        longest = {"time": model.encoder.embeddings.max_positions}
        super().__init__(model, encoder_inputs(model.encoder), outputs, longest)
        self.read = read

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.read(self.model, dict(zip(self.inputs, inputs)))


class SourceGraph(Graph):
    """The encoder of an encoder-decoder, and keys and values of its output for each layer of the decoder.

    Outputs: `hidden` (B, S, C), `memory_key_N` and `memory_value_N` (B, H, S, D).
    """

    def __init__(self, model: Any):
        cfg, layers = model.cfg, model.decoder.layers
        outputs: dict[str, Axes] = {"hidden": ("batch", "time", cfg.embed_dim)}
        outputs |= caches("memory", len(layers), cfg, "time")
        longest = model.encoder.embeddings.max_positions
        super().__init__(model, encoder_inputs(model.encoder), outputs, {"time": longest})

    def forward(self, *inputs: Tensor) -> list[Tensor]:
        hidden = Encoder.forward(self.model.encoder, **cast(Any, dict(zip(self.inputs, inputs))))
        cached = [layer.cross_attention.keys_and_values(hidden) for layer in self.model.decoder.layers]
        return [hidden, *(tensor for pair in cached for tensor in pair)]


class StepGraph(Graph):
    """One step of a decoder: logits of the token that follows, and the caches with one more position.

    Inputs: `tokens` (B, 1), the previous token, at the first step `[xx]`; `padding_mask` (B, S) of the source;
    `languages` (B, 1) of the output, where the model has language embeddings; `memory_key_N`, `memory_value_N`
    (B, H, S, D); `past_key_N`, `past_value_N` (B, H, t, D), at the first step with t = 0.
    Outputs: `logits` (B, V), `key_N`, `value_N` (B, H, t + 1, D).
    """

    def __init__(self, model: Any):
        cfg, decoder = model.cfg, model.decoder
        if decoder.num_starts:
            raise UserError("--decoder-start eos: an exported step of a decoder begins with the target language alone")
        count = len(decoder.layers)
        inputs: dict[str, Axes] = {"tokens": ("batch", 1), "padding_mask": ("batch", "time")}
        if decoder.embeddings.languages is not None:
            inputs["languages"] = ("batch", 1)
        inputs |= caches("memory", count, cfg, "time") | caches("past", count, cfg, "past")
        outputs = {"logits": ("batch", len(decoder.dictionary))} | caches("", count, cfg, "past + 1")
        largest = {"time": model.encoder.embeddings.max_positions, "past": decoder.max_positions() - 1}
        super().__init__(model, inputs, outputs, largest)

    def forward(self, *inputs: Tensor) -> list[Tensor]:
        tensors, decoder = dict(zip(self.inputs, inputs)), self.model.decoder
        caches = [
            LayerCache(*(Cache(*(tensors[f"{kind}_{name}_{layer}"] for name in ("key", "value"))) for kind in KINDS))
            for layer in range(len(decoder.layers))
        ]
        # the memory itself is not read: its keys and values are in the caches
        memory = {"encoder_out": [tensors["memory_key_0"]], "encoder_padding_mask": [tensors["padding_mask"]]}
        layer_inputs: dict[str, Any] = {"encoder_out": memory, "incremental_state": {"caches": caches}}
        past = tensors["past_key_0"].size(2)
        hidden = decoder.new_features(tensors["tokens"], tensors.get("languages"), past, **layer_inputs)
        outputs = [decoder.output(hidden[:, -1])]
        for cache in caches:
            outputs += cache.self_attention.key, cache.self_attention.value
        return outputs


def encoder_inputs(encoder: Encoder) -> dict[str, Axes]:
    """{name: axes} of the inputs of an encoder."""
    inputs: dict[str, Axes] = {"tokens": ("batch", "time"), "padding_mask": ("batch", "time")}
    if encoder.embeddings.languages is not None:
        inputs["languages"] = ("batch", 1)
    if getattr(encoder.embeddings, "segments", None) is not None:
        inputs["segments"] = ("batch", "time")
    return inputs


def caches(kind: str, layers: int, cfg: Any, length: str) -> dict[str, Axes]:
    """{name: (B, H, length, D)} of the keys and values of each layer, named `KIND_key_N` or `key_N`."""
    prefix, axes = kind and f"{kind}_", ("batch", cfg.heads, length, cfg.embed_dim // cfg.heads)
    return {f"{prefix}{name}_{layer}": axes for layer in range(layers) for name in ("key", "value")}
