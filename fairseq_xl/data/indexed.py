"""Opening binarised text."""

from pathlib import Path

from fairseq.data import data_utils

from fairseq_xl.errors import UserError


def open_text(prefix, language):
    """The items of ``PREFIX.bin`` and ``PREFIX.idx``, memory-mapped.

    Raises `UserError` for a text that is not there, or without a single line: fairseq cannot map an empty file.
    """
    items = None
    if Path(f"{prefix}.bin").is_file():
        if not Path(f"{prefix}.bin").stat().st_size:
            raise UserError(f"{prefix}: the text of language {language!r} is empty")
        items = data_utils.load_indexed_dataset(str(prefix), None)
    if items is None:
        raise UserError(f"{prefix}.idx: no binarised text of language {language!r} there")
    return items
