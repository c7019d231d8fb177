"""The files that a run reads: their fingerprints are stored in its checkpoints, so that a resumed run reads the same.

Names have neither the folder nor its place on the disk: a data folder or a folder of task files may be moved or copied.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq_xl.data.manifest import sampled, stored_fingerprint
from fairseq_xl.errors import UserError
from fairseq_xl.io.compressed import read_text

UNKNOWN = "-"  # part of a fingerprint that is not known
WAY_OUT = "restore it, choose another --save-dir, or begin an epoch of other files with --reset-dataloader"


class Inputs:
    """The files that each split of a run reads, {split: {name: fingerprint}}, and those of its checkpoint.

    A fingerprint is text of three parts, of which two files must have equal ones as far as both are known: bytes, hash
    of samples, hash of all bytes.
    """

    def __init__(self) -> None:
        self.read: dict[str, dict[str, str]] = {}
        self._paths: dict[tuple[str, str], Path] = {}
        self._stored: dict[str, dict[str, str]] = {}
        self._origin = ""

    def resume(self, stored: Any, origin: str) -> None:
        """Compares the files with those of a checkpoint, from now on; raises `UserError` for a changed one.

        Args:
            stored: `read` of the run that wrote the checkpoint; None: unknown.
            origin: the checkpoint's file, for messages.
        """
        stored = {} if stored is None else stored
        for of_split in stored.values() if isinstance(stored, dict) else [None]:
            if not isinstance(of_split, dict) or not all(_is_fingerprint(each) for each in of_split.values()):
                raise UserError(f"{origin} is damaged: the fingerprints of the files that it was trained on")
        self._stored, self._origin = stored, origin
        for (split, name), path in self._paths.items():
            self._compare(split, name, path)

    def add(self, split: str, name: str, path: Path, fingerprint: str) -> None:
        """Adds a file that a split reads; raises `UserError` if it is not that of the checkpoint."""
        self.read.setdefault(split, {})[name], self._paths[split, name] = fingerprint, path
        self._compare(split, name, path)

    def check_complete(self, split: str) -> None:
        """Raises `UserError` unless a split reads all files that it read before the checkpoint, and no others."""
        before, now = self._stored.get(split), self.read.get(split, {})
        if before is not None and (others := sorted(before.keys() ^ now.keys())):
            which = "also read" if others[0] in before else "did not read"
            raise UserError(f"{self._origin}: its run {which} {others[0]} for the split {split!r}: {WAY_OUT}")

    def _compare(self, split: str, name: str, path: Path) -> None:
        before, now = self._stored.get(split, {}).get(name), self.read[split][name]
        if before is not None and any(
            one != other and UNKNOWN not in (one, other) for one, other in zip(before.split(), now.split(), strict=True)
        ):
            raise UserError(f"{path} is not the file that {self._origin} was trained with: {WAY_OUT}")


def _is_fingerprint(value: Any) -> bool:
    return isinstance(value, str) and len(value.split()) == 3


def of_binarized(path: Path) -> str:
    """The fingerprint of a file of a data folder, from its manifest or from samples of the file."""
    known: Mapping[str, Any] = stored_fingerprint(path.parent.parent, f"{path.parent.name}/{path.name}") or {}
    blocks = known.get("blocks")
    whole = _digest(" ".join(map(str, blocks)).encode()) if isinstance(blocks, list) else UNKNOWN
    return f"{known.get('bytes', path.stat().st_size)} {known.get('sampled') or sampled(path)} {whole}"


def of_text(path: Path) -> str:
    """The fingerprint of the text of a file, compressed or not."""
    text = read_text(path, lines=False)
    return f"{len(text)} {UNKNOWN} {_digest(text)}"


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
