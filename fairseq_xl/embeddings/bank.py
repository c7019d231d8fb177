"""A bank of embeddings that were learned apart from the model, for the body of a checkpoint (MonoTrans, M8: CLWE).

    python -m fairseq_xl.embeddings.bank CHECKPOINT DATA VECTORS.npz BANK.pt [--std 0.02]

DATA is the folder whose dictionary the bank is for. Vectors are stretched so that their numbers have the standard
deviation `--std` of new embeddings, by one factor for all languages, which are of length 1. The output bias is 0: it
predicts masked words, and classification does not read it.
"""

import argparse
from pathlib import Path

import torch

from fairseq_xl import error_reporting, register
from fairseq_xl.checkpoints import banks
from fairseq_xl.data.dictionary import XLDictionary
from fairseq_xl.embeddings.vectors import read
from fairseq_xl.errors import UserError
from fairseq_xl.io.checkpoints import load_checkpoint


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


def main(arguments: "list[str] | None" = None) -> None:
    """The command; ``--help`` lists what it takes."""
    parser = argparse.ArgumentParser("python -m fairseq_xl.embeddings.bank", description=__doc__.split("\n")[0])
    parser.add_argument("checkpoint", help="of an xl_monotrans_* model, whose body the bank is for")
    parser.add_argument("data", type=Path, help="folder with the dictionary of the embeddings")
    parser.add_argument("vectors", help="file of fairseq_xl.embeddings.skipgram or mapping")
    parser.add_argument("bank", help="file to write")
    parser.add_argument("--std", type=float, default=0.02, help="standard deviation of the numbers (default: 0.02)")
    options = parser.parse_args(arguments)
    register()
    if not options.std > 0:
        raise UserError(f"--std {options.std}: more than 0 is needed")
    own = banks.extract(load_checkpoint(options.checkpoint), options.checkpoint)
    dictionary = XLDictionary.load(options.data / "dict.txt")
    banks.write(make(own, read(options.vectors), dictionary, options.std), options.bank)


if __name__ == "__main__":
    error_reporting.install()
    main()
