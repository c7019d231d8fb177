"""Counts lines of validation and test text that also occur in the training text of their language.

Memory grows by 8 bytes for each line of validation and test text, and not with training text.
"""

import hashlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from fairseq_xl.io.text import texts_of
from preprocess.config import Config
from preprocess.files import Workers, read_blocks
from preprocess.vocabulary import training_files

NAMED = 3  # files of each language, and lines of each file, that the warning names
BLANK = bytes(8)  # the hash of a blank line

logger = logging.getLogger("preprocess")


def evaluation_files(config: Config) -> dict[str, list[str]]:
    """Lists validation and test files, sides of bitext included, of each language that has training text."""
    files = {language: [] for language, training in training_files(config).items() if training}
    for _, split, side in config.sides():
        if split.name != "train" and side.language in files:
            files[side.language] += [name for name in side.files if name not in files[side.language]]
    return {language: names for language, names in files.items() if names}


def hashes(block: bytes) -> np.ndarray:
    """Hashes the lines of a block, (lines,) uint64; 0 for blank lines."""
    digests = [hashlib.blake2b(line.encode(), digest_size=8).digest() if line else BLANK for line in texts_of(block)]
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


def find(config: Config, workers: Workers, progress: Callable[[int], object]) -> list[dict]:
    """Finds lines of training text in validation and test files; returns their number in each file, and the first ones.

    `progress` is called with the number of bytes read.
    """
    overlaps = []
    for language, files in evaluation_files(config).items():
        lines = {name: np.concatenate([*_hashed(config.root / name, workers, progress)]) for name in files}
        evaluation_hashes = np.unique(np.concatenate([*lines.values()]))
        first_lines = {}  # {hash: (file, line number) of its first line in training text}
        for name in training_files(config)[language]:
            before = 0
            for block in _hashed(config.root / name, workers, progress):
                near = np.minimum(np.searchsorted(evaluation_hashes, block), len(evaluation_hashes) - 1)
                for i in np.flatnonzero((evaluation_hashes[near] == block) & (block != 0)).tolist():
                    first_lines.setdefault(int(block[i]), (name, before + i + 1))
                before += len(block)
        for name, line_hashes in lines.items():
            matches = [i for i, line in enumerate(line_hashes.tolist()) if line in first_lines]
            if matches:
                first = [(i + 1, *first_lines[int(line_hashes[i])]) for i in matches[:NAMED]]
                overlaps.append(
                    {
                        "file": name,
                        "language": language,
                        "lines": int(np.count_nonzero(line_hashes)),
                        "found": len(matches),
                        "first": first,
                    }
                )
    return overlaps


def _hashed(path: Path, workers: Workers, progress: Callable[[int], object]) -> Iterator[np.ndarray]:
    return workers.map(hashes, read_blocks(path, progress))


def warn(overlaps: list[dict]) -> None:
    """Logs a warning for each language in the result of `find`."""
    for language in dict.fromkeys(overlap["language"] for overlap in overlaps):
        files = [overlap for overlap in overlaps if overlap["language"] == language]
        remainder = f"; and in {len(files) - NAMED} more files" if len(files) > NAMED else ""
        logger.warning(
            "lines of validation and test text of %s that also occur in its training text: %d; %s%s",
            language,
            sum(overlap["found"] for overlap in files),
            "; ".join(map(_describe, files[:NAMED])),
            remainder,
        )


def _describe(overlap: dict) -> str:
    """Describes an entry of the result of `find`: the number of lines of training text, and the first ones."""
    first = ", ".join(f"line {line} ({name}, line {training_line})" for line, name, training_line in overlap["first"])
    ellipsis = ", …" if overlap["found"] > len(overlap["first"]) else ""
    share = f"{100 * overlap['found'] / overlap['lines']:.1f} %"
    return f"in {overlap['file']} {overlap['found']} of {overlap['lines']} ({share}), {first}{ellipsis}"
