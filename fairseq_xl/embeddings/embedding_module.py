"""Language modules with embeddings learned without the model (Artetxe et al. 2020, section 3.1)."""

from dataclasses import replace

import torch

from fairseq_xl.checkpoints.parameter_names import BIAS, TOKENS
from fairseq_xl.errors import UserError


def make(module, vectors, dictionary, std):
    """Makes a language module with embeddings of a dictionary, for the body of a checkpoint's `module`.

    Embeddings have length 1; one factor scales them. The output bias is 0: it predicts masked tokens, and
    classification does not use it.

    Args:
        vectors: `Vectors` of every piece of the dictionary.
        std: standard deviation of the values of the scaled embeddings.

    Raises `UserError` for pieces without an embedding, another number of channels, and a module with positions,
    adapters or a language embedding.
    """
    surplus = sorted(module.state.keys() - {TOKENS, BIAS})
    if surplus:
        raise UserError(f"the checkpoint's language module has {surplus[0]}: only embeddings can be mapped")
    channels = module.state[TOKENS].shape[1]
    if vectors.rows.shape[1] != channels:
        raise UserError(f"the embeddings have {vectors.rows.shape[1]} channels, the model {channels}")
    positions = {symbol: position for position, symbol in enumerate(vectors.symbols)}
    missing = [symbol for symbol in map(dictionary.symbols.__getitem__, dictionary.pieces) if symbol not in positions]
    if missing:
        raise UserError(f"{len(missing)} pieces of the dictionary have no embedding, the first is {missing[0]!r}")
    tokens = torch.zeros(len(dictionary), channels)
    rows = torch.from_numpy(vectors.rows)[[positions[dictionary.symbols[index]] for index in dictionary.pieces]]
    tokens[torch.from_numpy(dictionary.pieces)] = rows * (std * channels**0.5)
    return replace(
        module,
        languages=list(dictionary.languages),
        dictionary=dictionary.digest(),
        state={TOKENS: tokens, BIAS: torch.zeros(len(dictionary))},
    )
