"""Carrying weights from a pre-trained checkpoint into a new model: pure functions on state dicts."""

from fairseq_xl.errors import UserError


def donate(recipient, donor, stack, origin, only=None):
    """Copies the donor's encoder into one stack of the recipient (X11, X13).

    Args:
        recipient: state dict of the new model, keys ``encoder.*`` and ``decoder.*``.
        donor: state dict of a pre-trained model, keys ``encoder.*`` and ``output.*``.
        stack: ``encoder`` or ``decoder``: where the weights go.
        origin: the donor's file, for messages.
        only: copy only the keys below this prefix of the stack (``bank.tokens`` for the embeddings alone).

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
    layers = [max((_layer(key) for key in state), default=-1) + 1 for state in (given, wanted)]
    if layers[0] != layers[1]:
        raise UserError(f"{origin} has {layers[0]} layers, the {stack} to initialise has {layers[1]}")
    common = [key for key in wanted if key in given]
    for key in common:
        if given[key].shape != wanted[key].shape:
            raise UserError(
                f"{origin}: {key} has shape {tuple(given[key].shape)}, the {stack} to initialise needs "
                f"{tuple(wanted[key].shape)}"
            )
    return {f"{stack}.{key}": given[key] for key in common}, [key for key in wanted if key not in given]


def _layer(key):
    parts = key.split(".")
    return int(parts[1]) if parts[0] == "layers" else -1
