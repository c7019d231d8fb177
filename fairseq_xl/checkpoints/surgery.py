"""Carrying weights from a pre-trained checkpoint into a new model: pure functions on state dicts."""

from fairseq_xl.errors import UserError


#: which layers of a deeper donor a stack takes
LAYERS = ("all", "first", "last")


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
    """Copies the donor's encoder into one stack of the recipient (X11, X13, V10).

    Args:
        recipient: state dict of the new model, keys ``encoder.*`` and ``decoder.*``.
        donor: state dict of a pre-trained model, keys ``encoder.*`` and ``output.*``.
        stack: ``encoder`` or ``decoder``: where the weights go.
        origin: the donor's file, for messages.
        only: copy only the keys below this prefix of the stack (``bank.tokens`` for the embeddings alone).
        layers: ``all``, or which ones of a donor that has more of them than the stack: its ``first`` or ``last`` (V10).

    Returns: the copied state dict {key of the recipient: tensor} and the list of the stack's keys that stay new.
    Raises `UserError` naming the first shape that doesn't fit, or layers that one side has and the other lacks.
    """
    given = {key.removeprefix("encoder."): value for key, value in donor.items() if key.startswith("encoder.")}
    if given and stack == "decoder":  # the dense part of an output layer belongs to the stack that predicts
        given |= {key: value for key, value in donor.items() if key.startswith("output.")}
    wanted = {key.removeprefix(f"{stack}."): value for key, value in recipient.items() if key.startswith(f"{stack}.")}
    if only is not None:
        given, wanted = ({key: state[key] for key in state if key.startswith(only)} for state in (given, wanted))
    if not given:
        raise UserError(f"{origin} holds no encoder weights")
    if layers != "all":
        given = choose_layers(given, count_layers(wanted), layers, origin)
    copied, new = _matching(wanted, given, origin, stack)
    return {f"{stack}.{key}": value for key, value in copied.items()}, new


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


def _matching(wanted, given, origin, recipient):
    depths = [count_layers(state) for state in (given, wanted)]
    if depths[0] != depths[1]:
        raise UserError(f"{origin} has {depths[0]} layers, the {recipient} to initialise has {depths[1]}")
    common = [key for key in wanted if key in given]
    for key in common:
        if given[key].shape != wanted[key].shape:
            raise UserError(
                f"{origin}: {key} has shape {tuple(given[key].shape)}, the {recipient} to initialise needs "
                f"{tuple(wanted[key].shape)}"
            )
    return {key: given[key] for key in common}, [key for key in wanted if key not in given]


def _layer(key):
    parts = key.removeprefix("encoder.").split(".")
    return int(parts[1]) if parts[0] == "layers" else -1
