"""Encodes text as pieces, in parallel and in order, for fairseq-preprocess."""

import functools
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from fairseq_xl.data.vocabulary import tokenizers
from fairseq_xl.data.vocabulary.special_symbols import SPECIAL
from fairseq_xl.data.vocabulary.subwords import Source, Subwords
from fairseq_xl.io.files import read_json, replacing, write_json
from fairseq_xl.io.text import texts_of
from preprocess.files import Workers, read_blocks

_subwords: Subwords  # of this process, set by start()
_symbols: list[str] = []


@dataclass(frozen=True)
class Encoded:
    """A block after encoding."""

    text: bytes  # one line per sentence, pieces separated by spaces
    lines: int
    blank: int
    tokens: int  # without </s>
    unknown: int  # tokens that are <unk>
    lost: Counter  # what the vocabulary lacks, with its counts
    ids: np.ndarray  # (k,) ids of pieces that occur
    counts: np.ndarray  # (k,) their frequencies


def start(source: Source, reserved: tuple[str, ...]) -> None:
    """Prepares this process for `encode_block`; pieces equal to `reserved` symbols are written as <unk>."""
    global _subwords, _symbols
    _subwords = source.open()
    _symbols = ["<unk>" if symbol in (*SPECIAL, *reserved) else symbol for symbol in _subwords.symbols]


def encode_block(block: bytes, tokenizer: tuple[str, str] | None = None) -> Encoded:
    """Encodes whole lines after tokenizing them with `tokenizer` (name, language). Only blank lines become blank.
    A line without pieces, such as a zero-width space, is written as <unk>, since an empty line would end a document.
    """
    lines = texts_of(block)
    if tokenizer:
        lines = [tokenizers.tokenize(line, *tokenizer) for line in lines]
    rows = _subwords.encode(lines)
    rows = [row if row or not line else [_subwords.unknown] for row, line in zip(rows, lines)]
    text = "".join(" ".join([_symbols[index] for index in row]) + "\n" for row in rows)
    counts = np.bincount(np.array([index for row in rows for index in row], dtype=np.int64), minlength=len(_symbols))
    ids = np.flatnonzero(counts)
    unknown = [line for line, row in zip(lines, rows) if _subwords.unknown in row]
    return Encoded(
        text=text.encode("utf-8"),
        lines=len(lines),
        blank=sum(not line for line in lines),
        tokens=int(counts.sum()),
        unknown=int(counts[[index for index in ids if _symbols[index] == "<unk>"]].sum()),
        lost=Counter(part for line in unknown for part in _subwords.lost(line)),
        ids=ids,
        counts=counts[ids],
    )


def encode(
    paths: Sequence[Any],
    boundaries: list[bool],
    output: Path,
    workers: Workers,
    progress: tqdm,
    tokenizer: tuple[str, str] | None = None,
    read: Callable[[Any], Iterator[bytes]] = read_blocks,
) -> dict:
    """Encodes the files `paths` into one file `output`, with an empty line after those marked in `boundaries`.

    `read` yields the blocks of lines of an element of `paths`, which may be a part of a file.
    `tokenizer` is a name and a language, or None for raw text. `output`.counts.json gets the frequencies of ids.
    Returns lines and tokens, in total and by file, the lost characters, and the hash of the encoded text.
    """
    totals, files = {"lines": 0, "blank": 0, "tokens": 0, "unknown": 0}, []
    frequencies, lost, digest = {}, Counter(), hashlib.sha256()
    with replacing(output, make_folder=True) as file:
        for path, boundary in zip(paths, boundaries):
            counted = dict.fromkeys(totals, 0)
            for block in workers.map(functools.partial(encode_block, tokenizer=tokenizer), read(path)):
                file.write(block.text)
                lost += block.lost
                digest.update(block.text)
                progress.update(block.lines)
                for name in counted:
                    counted[name] += getattr(block, name)
                for index, count in zip(block.ids.tolist(), block.counts.tolist()):
                    frequencies[index] = frequencies.get(index, 0) + count
            if boundary:
                file.write(b"\n")
                digest.update(b"\n")
                totals["lines"], totals["blank"] = totals["lines"] + 1, totals["blank"] + 1
            totals = {name: totals[name] + counted[name] for name in totals}
            files.append(counted)
        write_json(counts_of(output), frequencies)
    return totals | {"files": files, "lost": lost, "sha256": digest.hexdigest()}


def read_counts(path: Path) -> dict[int, int]:
    """Reads the frequencies of pieces by their ids."""
    return {int(index): count for index, count in read_json(path).items()}


def counts_of(encoded: Path) -> Path:
    """Returns the path of the frequencies of an encoded file."""
    return encoded.with_name(encoded.name + ".counts.json")
