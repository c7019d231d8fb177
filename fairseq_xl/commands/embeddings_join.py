"""Joins the embeddings of several languages, mapped into one space, for a joint vocabulary.

    fairseq-xl embeddings join data-bin/my en=en.npz de=mapped.npz joint.npz

Each piece gets the vector of the language in whose training text its relative frequency is highest. Pieces that occur
in no text, or have no embedding in the file of their language, are left out. `--init-embeddings-from OUTPUT`
initializes token embeddings from it (Lample & Conneau 2019, section 4.2: EMB).
"""

from pathlib import Path

import numpy as np

from fairseq_xl.checkpoints.embedding_files import Vectors, read, space_of, write
from fairseq_xl.commands import Options, argument, command
from fairseq_xl.data.corpora.token_stream import piece_counts
from fairseq_xl.data.store.manifest import one_folder
from fairseq_xl.errors import UserError


@command(
    argument("data", "folder that `fairseq-xl data prepare` wrote", type=Path),
    argument("embeddings", "en=en.npz de=mapped.npz", nargs="+", metavar="LANGUAGE=FILE"),
    argument("output", "file to write, .npz"),
)
def main(options: Options) -> dict[str, int]:
    """Returns the number of pieces of each language."""
    from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary

    files = dict(argument.partition("=")[::2] for argument in options.embeddings)
    if len(files) < 2 or len(files) != len(options.embeddings) or not all(files.values()):
        raise UserError("expected LANGUAGE=FILE for two languages or more, each once: en=en.npz de=mapped.npz")
    options.data = one_folder(options.data)
    dictionary = XLDictionary.load(options.data / "dict.txt")
    embeddings = {code: read(file) for code, file in files.items()}
    channels = {code: vectors.rows.shape[1] for code, vectors in embeddings.items()}
    if len(set(channels.values())) > 1:
        raise UserError(f"the embeddings differ in their channels: {channels}")
    spaces = {code: vectors.space or space_of(vectors.rows) for code, vectors in embeddings.items()}
    first, *rest = files
    for code in rest:
        if embeddings[code].space and spaces[code] != spaces[first]:
            raise UserError(
                f"{files[code]} is not in the space of {files[first]}: `fairseq-xl embeddings map` maps one into the "
                "other"
            )
    counts = np.stack([piece_counts(options.data / code / "train", code, len(dictionary)) for code in files])  # (L, V)
    shares = counts / counts.sum(axis=1, keepdims=True)
    owners = np.where(counts.any(axis=0) & dictionary.is_piece, shares.argmax(axis=0), -1)  # (V,), -1: no language
    symbols, rows = [], []
    for owner, vectors in enumerate(embeddings.values()):
        rows_by_symbol = {symbol: row for row, symbol in enumerate(vectors.symbols)}
        owned = [dictionary.symbols[index] for index in np.flatnonzero(owners == owner)]
        present = [symbol for symbol in owned if symbol in rows_by_symbol]
        symbols += present
        rows.append(vectors.rows[[rows_by_symbol[symbol] for symbol in present]])
    write(Vectors(symbols, np.concatenate(rows), spaces[first]), options.output)
    return dict(zip(files, map(len, rows)))
