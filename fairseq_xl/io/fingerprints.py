"""Hashes and fingerprints of files, and the files of a run. Imports neither torch nor fairseq.

A fingerprint in the manifest of a data folder is a dict (`fingerprint`), one in a checkpoint a string of three parts:
number of bytes, hash of samples, hash of all bytes. A run compares its files with those of its checkpoint (`Inputs`).
Files are named without the path of their data folder or folder of task files, which may be moved or copied.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io.compressed import read_text

MOST_BLOCKS, LEAST_BLOCK = 64, 1 << 20  # maximum number of hashes of a file, and minimum bytes of a block
READ = 1 << 20  # bytes in memory at a time
#: number and size in bytes of the evenly spaced samples of a file that are compared when it is opened (1 MiB)
SAMPLES, SAMPLE_BYTES = 256, 4096
UNKNOWN = "-"  # part of a checkpoint's fingerprint that is not known
REMEDY = "restore it, choose another --save-dir, or begin an epoch of other files with --reset-dataloader"


def sha256_of(path: Path | str) -> str:
    """SHA-256 of a file's content, read in blocks."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(READ):
            digest.update(part)
    return digest.hexdigest()


def fingerprint(path: Path, **counts: int) -> dict[str, Any]:
    """The fingerprint of a file: size, hash of the samples, hashes of all blocks, and `counts`."""
    size = path.stat().st_size
    block = LEAST_BLOCK
    while block * MOST_BLOCKS < size:
        block *= 2
    return {"bytes": size, **counts, "sampled": sampled(path), "block": block, "blocks": list(blocks(path, block))}


def blocks(path: Path, block: int, progress: Callable[[int], object] | None = None) -> Iterator[str]:
    """Hashes of all blocks of a file; `progress` is called with the number of bytes of each read."""
    with open(path, "rb") as file:
        while part := file.read(min(READ, block)):
            digest, remaining = hashlib.blake2b(digest_size=16), block
            while part:
                digest.update(part)
                remaining -= len(part)
                if progress is not None:
                    progress(len(part))
                part = file.read(min(READ, remaining)) if remaining else b""
            yield digest.hexdigest()


def sampled(path: Path) -> str:
    """Hash of evenly spaced samples of a file, or of the whole file if it is no larger than the samples together."""
    size, digest = path.stat().st_size, hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        if size <= SAMPLES * SAMPLE_BYTES:
            digest.update(file.read())
        else:
            for index in range(SAMPLES):
                file.seek((size - SAMPLE_BYTES) * index // (SAMPLES - 1))
                digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()


def binarized_fingerprint(path: Path, entry: Mapping[str, Any] | None) -> str:
    """The fingerprint of a file of a data folder, from that of its manifest, or None, and from samples of the file."""
    entry = entry or {}
    blocks = entry.get("blocks")
    whole = _digest(" ".join(map(str, blocks)).encode()) if isinstance(blocks, list) else UNKNOWN
    return f"{entry.get('bytes', path.stat().st_size)} {entry.get('sampled') or sampled(path)} {whole}"


def text_fingerprint(path: Path) -> str:
    """The fingerprint of the text of a file, compressed or not."""
    text = read_text(path, lines=False)
    return f"{len(text)} {UNKNOWN} {_digest(text)}"


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


class Inputs:
    """A run's files, {split: {name: fingerprint}}, and its checkpoint's: equal if the parts known of both are."""

    def __init__(self) -> None:
        self.read: dict[str, dict[str, str]] = {}
        self._paths: dict[tuple[str, str], Path] = {}
        self._stored: dict[str, dict[str, str]] = {}
        self._origin = ""

    def resume(self, stored: Any, origin: str) -> None:
        """Compares files with `read` of the checkpoint `origin`, from now on; `UserError` for a changed one."""
        for files in stored.values() if isinstance(stored, dict) else [None]:
            values = files.values() if isinstance(files, dict) else [None]
            if not all(isinstance(value, str) and len(value.split()) == 3 for value in values):
                raise UserError(f"{origin} is damaged: expected fingerprints of files by split, found {quoted(stored)}")
        self._stored, self._origin = stored, origin
        for (split, name), path in self._paths.items():
            self._compare(split, name, path)

    def add(self, split: str, name: str, path: Path, fingerprint: str) -> None:
        """Adds a file that a split reads; raises `UserError` if it is not that of the checkpoint."""
        self.read.setdefault(split, {})[name], self._paths[split, name] = fingerprint, path
        self._compare(split, name, path)

    def check_complete(self, split: str) -> None:
        """Raises `UserError` unless a split has all files that it had before the checkpoint, and no others."""
        before, current = self._stored.get(split), self.read.get(split, {})
        if before is not None and (changes := sorted(before.keys() ^ current.keys())):
            verb = "also read" if changes[0] in before else "did not read"
            raise UserError(f"{self._origin}: its run {verb} {changes[0]} for the split {split!r}: {REMEDY}")

    def _compare(self, split: str, name: str, path: Path) -> None:
        before, current = self._stored.get(split, {}).get(name), self.read[split][name]
        if before is not None and any(
            old != new and UNKNOWN not in (old, new) for old, new in zip(before.split(), current.split(), strict=True)
        ):
            raise UserError(f"{path} is not the file that {self._origin} was trained with: {REMEDY}")


def symbols_digest(symbols: Iterable[str]) -> str:
    """SHA-256 over the symbols of a vocabulary in order: two vocabularies agree if and only if it does."""
    return hashlib.sha256("\n".join(symbols).encode("utf-8")).hexdigest()
