"""Copies encoders and decoders between state dicts: pure functions, which load and change nothing."""

import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from fairseq_xl.errors import UserError

#: which layers of a deeper stack are copied
LAYERS = ("all", "first", "last")
State = dict[str, Tensor]

_IN_LAYER = re.compile(r"\blayers\.(\d+)\.")


def copy_stack(
    model: State, pretrained: State, stack: str, origin: object, only: str | None = None, layers: str = "all"
) -> tuple[State, list[str]]:
    """Copies an encoder or a decoder into a new model's; a decoder can come from a pretrained encoder.

    A pretrained model without a decoder gives its encoder and its output layer to the new decoder (Lample & Conneau
    2019, section 4.2; Luo et al. 2020). Token embeddings that encoder and decoder share belong to the decoder too.

    Args:
        model, pretrained: state dicts with the keys ``encoder.*``, ``decoder.*`` and ``output.*``.
        stack: ``encoder`` or ``decoder``: where the weights go.
        only: copy only the keys that begin with this, such as ``token_embeddings.table``.
        layers: ``all``, or the ``first`` or ``last`` ones of a pretrained stack that is deeper than the new one.

    Returns: the copied state dict {key of the new model: tensor} and the stack's keys that the pretrained model lacks.
    Raises `UserError` naming `origin`, and the first shape that doesn't fit, or two numbers of layers that differ.
    """
    sources, keys = _stack(pretrained, stack), _stack(model, stack)
    if stack == "decoder" and not sources and (sources := _stack(pretrained, "encoder")):
        sources |= {key: key for key in pretrained if key.startswith("output.")}  # a decoder has the output layer
    source = {name: pretrained[key] for name, key in sources.items()}
    target = {name: model[key] for name, key in keys.items()}
    if only is not None:
        source, target = ({key: state[key] for key in state if key.startswith(only)} for state in (source, target))
    if not source:
        raise UserError(f"{origin} holds no encoder weights")
    if layers != "all":
        source = choose_layers(source, count_layers(target), layers, origin)
    elif stack == "decoder" and count_layers(source) > count_layers(target):
        raise UserError(
            f"{origin} has {count_layers(source)} layers, the new decoder has {count_layers(target)}: choose them with "
            "--init-decoder-layers first or last"
        )
    copied, new = copy_common(target, source, origin, stack)
    return {keys[name]: value for name, value in copied.items()}, new


def unused_parameters(pretrained: State, copied: Iterable[Tensor]) -> list[str]:
    """Lists the parts of a state dict without any of the tensors `copied`, each by its shortest prefix.

    ``layers.*.cross_attention`` is missing from all layers, ``layers.{0,1}.cross_attention`` from those.
    """
    taken = {id(tensor) for tensor in copied}
    used = {part for key, tensor in pretrained.items() if id(tensor) in taken for part in _parts(key)}
    widest = dict.fromkeys(next(part for part in _parts(k) if part not in used) for k in pretrained if k not in used)
    layers, remaining = {}, {}  # {part, its layer number replaced by *: numbers of the layers that have it}
    for layers_of_parts, parts in ((layers, {part for key in pretrained for part in _parts(key)}), (remaining, widest)):
        for part in parts:
            layers_of_parts.setdefault(_IN_LAYER.sub("layers.*.", part), []).extend(_IN_LAYER.findall(part))
    return [
        part if len(indices) == len(layers[part]) else part.replace("*", f"{{{','.join(indices)}}}")
        for part, indices in remaining.items()
    ]


def choose_layers(state: State, count: int, which: str, origin: object) -> State:
    """Keeps the ``first`` or ``last`` `count` layers of a stack, renumbered from 0, and all keys outside of layers.

    ``layers.11.ffn.up.weight`` is a parameter of layer 11. Raises `UserError` if there are fewer than `count` layers.
    """
    depth = count_layers(state)
    if depth < count:
        raise UserError(f"{origin} has {depth} layers, {count} are needed")
    shift = depth - count if which == "last" else 0
    layers = {}
    for key, value in state.items():
        index = _layer(key)
        if index < 0:
            layers[key] = value
        elif shift <= index < shift + count:
            layers[".".join(("layers", str(index - shift), *key.split(".")[2:]))] = value
    return layers


def count_layers(state: Mapping[str, Any], stack: str | None = None) -> int:
    """Number of layers in the state dict of a stack or an encoder model, or of one `stack` of any model."""
    if stack is not None:
        state = _stack(state, stack)
    return max(map(_layer, state), default=-1) + 1


def shares_token_embeddings(state: Iterable[str]) -> bool:
    """Whether encoder and decoder of an encoder-decoder share one embedding matrix."""
    return not any(key.startswith("decoder.token_embeddings.") for key in state)


def has_streams(state: Mapping[str, Any]) -> bool:
    """Whether a model's decoder predicts several tokens at each position, with a stream for each (ProphetNet)."""
    return "decoder.stream_embeddings.weight" in state


def _stack(state: Mapping[str, Any], stack: str) -> dict[str, str]:
    """{name in the stack: key of the state dict}"""
    names = {key.removeprefix(f"{stack}."): key for key in state if key.startswith(f"{stack}.")}
    if names and not any(name.startswith("token_embeddings.") for name in names):  # shared with the encoder
        names |= {key.removeprefix("encoder."): key for key in state if key.startswith("encoder.token_embeddings.")}
    return names


def copy_common(model: State, pretrained: State, origin: object, part: str = "model") -> tuple[State, list[str]]:
    """Copies what two models or stacks have under one name; returns it, and the keys of `model` that are new.

    Raises `UserError` as `copy_stack` does, which calls the new model `part`.
    """
    depths = [count_layers(state) for state in (pretrained, model)]
    if depths[0] != depths[1]:
        raise UserError(f"{origin} has {depths[0]} layers, the new {part} has {depths[1]}")
    common = [key for key in model if key in pretrained]
    for key in common:
        if pretrained[key].shape != model[key].shape:
            raise UserError(
                f"{origin}: {key} has shape {tuple(pretrained[key].shape)}, the new {part} needs "
                f"{tuple(model[key].shape)}: choose another --arch or size"
            )
    return {key: pretrained[key] for key in common}, [key for key in model if key not in pretrained]


def _parts(key: str) -> list[str]:
    """``a.b.c`` -> ``a``, ``a.b``, ``a.b.c``"""
    return list(itertools.accumulate(key.split("."), "{}.{}".format))


def _layer(key: str) -> int:
    parts = key.removeprefix("encoder.").split(".")
    return int(parts[1]) if parts[0] == "layers" else -1
