"""Carrying weights from a pre-trained checkpoint into a new model: pure functions on state dicts."""

import re

from fairseq_xl.errors import UserError


#: which layers of a deeper donor a stack takes
LAYERS = ("all", "first", "last")

_IN_LAYER = re.compile(r"\blayers\.(\d+)\.")


def inherit(recipient, donor, origin):
    """Copies all that two encoder models have under the same names: to go on from another run, with new parts or not.

    Args:
        recipient: state dict of the new model.
        donor: state dict of a pre-trained model.
        origin: the donor's file, for messages.

    Returns: the copied state dict and the list of the recipient's keys that stay new.
    Raises `UserError` as `donate` does.
    """
    return _matching(recipient, donor, origin, "model")


def donate(recipient, donor, stack, origin, only=None, layers="all"):
    """Copies one stack of the donor into that of the recipient; for a decoder, its encoder if it has no other.

    A decoder is given the encoder of X11, X13 and V10 with the output layer beside it, or that of a translation model.
    Where encoder and decoder of a model share a table of tokens, it is the decoder's too.

    Args:
        recipient: state dict of the new model, keys ``encoder.*`` and ``decoder.*``.
        donor: state dict of a pre-trained model, keys ``encoder.*`` and ``output.*``, or ``encoder.*`` and
            ``decoder.*``.
        stack: ``encoder`` or ``decoder``: where the weights go.
        origin: the donor's file, for messages.
        only: copy only the keys below this prefix of the stack (``bank.tokens`` for the embeddings alone).
        layers: ``all``, or which ones of a donor that has more of them than the stack: its ``first`` or ``last`` (V10).

    Returns: the copied state dict {key of the recipient: tensor} and the list of the stack's keys that stay new.
    Raises `UserError` naming the first shape that doesn't fit, or layers that one side has and the other lacks.
    """
    sources, places = _stack(donor, stack), _stack(recipient, stack)
    if stack == "decoder" and not sources and (sources := _stack(donor, "encoder")):
        sources |= {key: key for key in donor if key.startswith("output.")}  # they belong to the stack that predicts
    given = {name: donor[key] for name, key in sources.items()}
    wanted = {name: recipient[key] for name, key in places.items()}
    if only is not None:
        given, wanted = ({key: state[key] for key in state if key.startswith(only)} for state in (given, wanted))
    if not given:
        raise UserError(f"{origin} holds no encoder weights")
    if layers != "all":
        given = choose_layers(given, count_layers(wanted), layers, origin)
    copied, new = _matching(wanted, given, origin, stack)
    return {places[name]: value for name, value in copied.items()}, new


def has_streams(state):
    """Whether a state dict is that of a model whose decoder has predicting streams (G6)."""
    return "decoder.futures.weight" in state


def left_behind(donor, copied):
    """What of the donor is in none of the tensors `copied`: the widest parts, as ``output``, ``heads.clm``.

    What is left of all layers is one part, ``layers.*.cross_attention``, and of some ``layers.{0,1}.cross_attention``.
    """
    taken = {id(tensor) for tensor in copied}
    used = {part for key, tensor in donor.items() if id(tensor) in taken for part in _parts(key)}
    widest = dict.fromkeys(next(part for part in _parts(key) if part not in used) for key in donor if key not in used)
    layers, left = {}, {}  # {part, its layer as *: numbers of the layers that have it}
    for found, parts in ((layers, {part for key in donor for part in _parts(key)}), (left, widest)):
        for part in parts:
            found.setdefault(_IN_LAYER.sub("layers.*.", part), []).extend(_IN_LAYER.findall(part))
    return [
        part if len(numbers) == len(layers[part]) else part.replace("*", f"{{{','.join(numbers)}}}")
        for part, numbers in left.items()
    ]


def choose_layers(state, count, which, origin):
    """Keeps the ``first`` or ``last`` `count` layers of a stack, numbered anew from 0, and all that is in no layer.

    Layers are told by their index alone: ``layers.11.ffn.up.weight`` is a parameter of layer 11. Raises `UserError` if
    there are fewer than `count`.
    """
    depth = count_layers(state)
    if depth < count:
        raise UserError(f"{origin} has {depth} layers, {count} are wanted")
    shift = depth - count if which == "last" else 0
    chosen = {}
    for key, value in state.items():
        index = _layer(key)
        if index < 0:
            chosen[key] = value
        elif shift <= index < shift + count:
            chosen[".".join(("layers", str(index - shift), *key.split(".")[2:]))] = value
    return chosen


def count_layers(state):
    """Number of layers in the state dict of a stack or an encoder model."""
    return max(map(_layer, state), default=-1) + 1


def _stack(state, stack):
    """{name in the stack: key of the state dict}"""
    names = {key.removeprefix(f"{stack}."): key for key in state if key.startswith(f"{stack}.")}
    if names and not any(name.startswith("bank.") for name in names):  # the one bank is the encoder's
        names |= {key.removeprefix("encoder."): key for key in state if key.startswith("encoder.bank.")}
    return names


def _matching(wanted, given, origin, recipient):
    depths = [count_layers(state) for state in (given, wanted)]
    if depths[0] != depths[1]:
        raise UserError(f"{origin} has {depths[0]} layers, the {recipient} to initialise has {depths[1]}")
    common = [key for key in wanted if key in given]
    for key in common:
        if given[key].shape != wanted[key].shape:
            raise UserError(
                f"{origin}: {key} has shape {tuple(given[key].shape)}, the {recipient} to initialise needs "
                f"{tuple(wanted[key].shape)}: another --arch, or size"
            )
    return {key: given[key] for key in common}, [key for key in wanted if key not in given]


def _parts(key):
    """``a.b.c`` -> ``a``, ``a.b``, ``a.b.c``"""
    names = key.split(".")
    return [".".join(names[: count + 1]) for count in range(len(names))]


def _layer(key):
    parts = key.removeprefix("encoder.").split(".")
    return int(parts[1]) if parts[0] == "layers" else -1
