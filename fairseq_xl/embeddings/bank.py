"""A bank of embeddings that were learned apart from the model, for the body of a checkpoint (MonoTrans, M8: CLWE).

The command is `fairseq-xl language-module from-embeddings`. Vectors are stretched so that their numbers have the
standard deviation `--std` of new embeddings, by one factor for all languages, which are of length 1. The output bias is
0: it predicts masked words, and classification does not read it.
"""

import torch

from fairseq_xl.checkpoints import banks
from fairseq_xl.errors import UserError


def make(bank, vectors, dictionary, std):
    """The bank of a checkpoint, a dict as `banks.extract` returns it -> one for `dictionary` with other tokens.

    Args:
        vectors: `Vectors` of every piece of the dictionary.
        std: standard deviation of the numbers of a vector of length 1.

    Raises `UserError` for pieces without a vector, another number of channels, and a bank that has more than tokens.
    """
    more = sorted(bank["state"].keys() - {banks.TOKENS, banks.BIAS})
    if more:
        raise UserError(f"the checkpoint's bank has {more[0]}: embeddings alone are mapped")
    channels = bank["state"][banks.TOKENS].shape[1]
    if vectors.rows.shape[1] != channels:
        raise UserError(f"the embeddings have {vectors.rows.shape[1]} channels, the model {channels}")
    places = {symbol: place for place, symbol in enumerate(vectors.symbols)}
    missing = [symbol for symbol in map(dictionary.symbols.__getitem__, dictionary.pieces) if symbol not in places]
    if missing:
        raise UserError(f"{len(missing)} pieces of the dictionary have no vector, the first is {missing[0]!r}")
    tokens = torch.zeros(len(dictionary), channels)
    rows = torch.from_numpy(vectors.rows)[[places[dictionary.symbols[index]] for index in dictionary.pieces]]
    tokens[torch.from_numpy(dictionary.pieces)] = rows * (std * channels**0.5)
    return bank | {
        "languages": list(dictionary.languages),
        "dictionary": dictionary.digest(),
        "state": {banks.TOKENS: tokens, banks.BIAS: torch.zeros(len(dictionary))},
    }
