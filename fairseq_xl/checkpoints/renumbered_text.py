"""Copies of binarized text with the token ids of another dictionary. Imports neither torch nor fairseq."""

from pathlib import Path
from typing import Any

import numpy as np

from fairseq_xl.data.store.binarized_text import BLOCK_TOKENS
from fairseq_xl.errors import UserError
from fairseq_xl.io.files import replacing
from fairseq_xl.io.fingerprints import fingerprint
from fairseq_xl.io.indexed_text import CODES, SIZE, TOKEN_TYPES, header_for, read_header, write_index


def renumber(source: Path, target: Path, table: np.ndarray, symbols: int) -> dict[str, dict[str, Any]]:
    """Copies SOURCE.bin and SOURCE.idx to TARGET with the token ids of another dictionary, of `symbols` symbols.

    `table` (V,) has the new id of each old one. Returns the fingerprints of both files by name. Raises `UserError` for
    a damaged file, and for a token id that `table` lacks.
    """
    index = Path(f"{source}.idx")
    header = read_header(index)
    if header is not None and header.code not in CODES:
        raise UserError(f"{index}: found token type {header.code}, expected int32, uint16 or uint32")
    if header is None or index.stat().st_size != header.file_size:
        raise UserError(f"{index} is damaged: the index is incomplete")
    sizes, kind = np.fromfile(index, np.int32, header.items, offset=SIZE), TOKEN_TYPES[header.code]
    written = header_for(symbols, header.items)
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{source}.bin", "rb") as text, replacing(f"{target}.bin") as file:
        while block := text.read(BLOCK_TOKENS * header.token_size):
            tokens = np.frombuffer(block, kind)
            if not 0 <= tokens.min() <= tokens.max() < len(table):
                raise UserError(f"{source}.bin has numbers that its dictionary of {len(table)} symbols lacks")
            file.write(table[tokens].astype(TOKEN_TYPES[written.code]).tobytes())
    write_index(f"{target}.idx", written, sizes)
    counts = {"lines": header.items, "tokens": int(sizes.sum(dtype=np.int64))}
    fingerprints = fingerprint(Path(f"{target}.bin")), fingerprint(Path(f"{target}.idx"), **counts)
    return dict(zip((f"{target.name}.bin", f"{target.name}.idx"), fingerprints, strict=True))
