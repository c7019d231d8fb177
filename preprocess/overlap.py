"""Counts lines of validation and test text that also occur in the training text of their language.

Memory grows by 8 bytes for each line of validation and test text, and not with training text: that is read in blocks.
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
    """Validation and test files, sides of bitext included, of each language that has training text."""
    files = {language: [] for language, training in training_files(config).items() if training}
    for _, split, side in config.sides():
        if split.name != "train" and side.language in files:
            files[side.language] += [name for name in side.files if name not in files[side.language]]
    return {language: names for language, names in files.items() if names}


def hashes(block: bytes) -> np.ndarray:
    """Hashes of the lines, (lines,) uint64; 0 for blank lines."""
    digests = [hashlib.blake2b(line.encode(), digest_size=8).digest() if line else BLANK for line in texts_of(block)]
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


def find(config: Config, workers: Workers, progress: Callable[[int], object]) -> list[dict]:
    """Finds lines of training text in validation and test files: their number in each file, and the first ones.

    `progress` is called with the number of bytes read.
    """
    found = []
    for language, files in evaluation_files(config).items():
        lines = {name: np.concatenate([*_hashed(config.root / name, workers, progress)]) for name in files}
        wanted = np.unique(np.concatenate([*lines.values()]))
        places = {}  # hash -> file and number of the first line of training text that has it
        for name in training_files(config)[language]:
            before = 0
            for block in _hashed(config.root / name, workers, progress):
                near = np.minimum(np.searchsorted(wanted, block), len(wanted) - 1)
                for number in np.flatnonzero((wanted[near] == block) & (block != 0)).tolist():
                    places.setdefault(int(block[number]), (name, before + number + 1))
                before += len(block)
        for name, each in lines.items():
            numbers = [number for number, line in enumerate(each.tolist()) if line in places]
            if numbers:
                first = [(number + 1, *places[int(each[number])]) for number in numbers[:NAMED]]
                found.append(
                    {
                        "file": name,
                        "language": language,
                        "lines": int(np.count_nonzero(each)),
                        "found": len(numbers),
                        "first": first,
                    }
                )
    return found


def _hashed(path: Path, workers: Workers, progress: Callable[[int], object]) -> Iterator[np.ndarray]:
    return workers.map(hashes, read_blocks(path, progress))


def warn(found: list[dict]) -> None:
    """Logs a warning for each language in the result of `find`."""
    for language in dict.fromkeys(each["language"] for each in found):
        files = [each for each in found if each["language"] == language]
        more = f"; and in {len(files) - NAMED} more files" if len(files) > NAMED else ""
        logger.warning(
            "lines of validation and test text of %s that also occur in its training text: %d; %s%s",
            language,
            sum(each["found"] for each in files),
            "; ".join(map(_described, files[:NAMED])),
            more,
        )


def _described(each: dict) -> str:
    """An entry of the result of `find` as text: number of lines of training text, and places of the first ones."""
    first = ", ".join(f"line {number} ({name}, line {line})" for number, name, line in each["first"])
    more = ", …" if each["found"] > len(each["first"]) else ""
    share = f"{100 * each['found'] / each['lines']:.1f} %"
    return f"in {each['file']} {each['found']} of {each['lines']} ({share}), {first}{more}"
