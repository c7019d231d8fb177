"""Fingerprints of the files of a run: checkpoints store them, and a resumed run with other files is refused.

Files are named without the path of their data folder or folder of task files, which may be moved or copied.
"""

from pathlib import Path
from typing import Any

from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io.fingerprints import UNKNOWN

REMEDY = "restore it, choose another --save-dir, or begin an epoch of other files with --reset-dataloader"


class Inputs:
    """The files of each split of a run, {split: {name: fingerprint}}, and those of its checkpoint.

    Two files are the same if the parts are equal that both fingerprints have.
    """

    def __init__(self) -> None:
        self.read: dict[str, dict[str, str]] = {}
        self._paths: dict[tuple[str, str], Path] = {}
        self._stored: dict[str, dict[str, str]] = {}
        self._origin = ""

    def resume(self, stored: Any, origin: str) -> None:
        """Compares the files with those of a checkpoint, from now on; raises `UserError` for a changed one.

        Args:
            stored: `read` of the run that wrote the checkpoint.
            origin: the checkpoint's file, for messages.
        """
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
