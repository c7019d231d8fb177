"""Opens binarized text."""

from pathlib import Path

import numpy as np
from fairseq.data import data_utils

from fairseq_xl.data.index_header import read_header, read_sizes
from fairseq_xl.data.manifest import check_fingerprint
from fairseq_xl.errors import UserError


def is_begun(prefix):
    """Whether at least one of the two files of a text exists."""
    return any(Path(f"{prefix}.{end}").exists() for end in ("bin", "idx"))


class Text:
    """The items of a binarized text, memory-mapped: tensors (t,) int64 that end in ``</s>``.

    Args:
        prefix: prefix of the ``.bin`` and ``.idx`` files.
        language: code of the language.
        symbols: size of the dictionary that token ids are checked against; None: no check.
    """

    def __init__(self, prefix, language, symbols=None):
        self.prefix, self.language, self.symbols = str(prefix), language, symbols
        self.items = data_utils.load_indexed_dataset(self.prefix, None)

    @property
    def sizes(self):
        """Number of tokens of each item, (n,), memory-mapped as long as this object exists."""
        return self.items.sizes

    def __len__(self):
        return len(self.items)

    def __getitem__(self, line):
        item = self.items[line]
        check_numbers(item.numpy(), self.symbols, self.prefix, self.language)
        return item


def check_numbers(tokens, symbols, prefix, language):
    """Raises `UserError` if tokens (t,) of a text hold an id outside the dictionary of `symbols` symbols."""
    if symbols is None or not len(tokens):
        return
    least, most = tokens.min(), tokens.max()
    if least < 0 or most >= symbols:
        raise UserError(
            f"{prefix}.bin: the text of language {language!r} has the token id {least if least < 0 else most}, the "
            f"dictionary {symbols} symbols: the file is damaged or was binarized with another dictionary"
        )


def open_text(prefix, language, symbols=None):
    """Opens the `Text` in ``PREFIX.bin`` and ``PREFIX.idx``.

    Raises `UserError` if the text does not exist or has no line (fairseq cannot map an empty file), if the sizes of its
    files show that they are damaged or do not belong together, or if it differs from the manifest of the data folder
    (`check_fingerprint`).
    """
    for end in ("idx", "bin"):
        if not Path(f"{prefix}.{end}").is_file():
            raise UserError(f"{prefix}.{end}: no binarized text of language {language!r} there")
    if not Path(f"{prefix}.bin").stat().st_size:
        raise UserError(f"{prefix}: the text of language {language!r} is empty")
    counts = _check_sizes(Path(f"{prefix}.idx"), Path(f"{prefix}.bin"))
    folder, name = Path(prefix).parent.parent, "/".join(Path(prefix).parts[-2:])
    check_fingerprint(folder, f"{name}.idx", **counts)
    check_fingerprint(folder, f"{name}.bin")
    return Text(prefix, language, symbols)


def _check_sizes(index, text):
    """Checks the sizes of both files; the numbers of lines and tokens."""
    header = read_header(index)
    if header is None:
        raise UserError(f"{index} is damaged, or not an index that fairseq-preprocess writes with --dataset-impl mmap")
    found, expected = index.stat().st_size, header.file_size
    if found != expected:
        raise UserError(f"{index} is damaged or cut short: {header.items} items take {expected} bytes, it has {found}")
    tokens = int(read_sizes(index, header.items).sum(dtype=np.int64))
    found, expected = text.stat().st_size, tokens * header.token_size
    if found != expected:
        raise UserError(
            f"{text} is damaged or cut short, or of another run than {index.name}: expected {expected} bytes, it has "
            f"{found}"
        )
    return {"lines": header.items, "tokens": tokens}
