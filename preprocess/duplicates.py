"""Finds repeated keys on the disk: memory does not grow with their number, up to a billion of them."""

from pathlib import Path

import numpy as np

PER_BUCKET = 1 << 21  # keys per bucket; a bucket is loaded whole (about 50 bytes per key)
MOST_BUCKETS = 500  # each is an open file
BUFFER = 1 << 16  # keys that are written at a time


class Duplicates:
    """Keys of lines, in files by their remainder.

    Args:
        folder: an existing folder for the files.
        expected: estimated number of keys.
    """

    def __init__(self, folder: Path, expected: int):
        count = min(MOST_BUCKETS, max(1, expected // PER_BUCKET))
        self.paths = [folder / f"keys-{bucket:03}" for bucket in range(count)]
        for path in self.paths:
            path.touch()
        self.keys, self.lines = [], []  # keys and lines that are not written yet

    def add(self, key: int, line: int) -> None:
        """Adds the key of a line; lines come in ascending order."""
        self.keys.append(key)
        self.lines.append(line)
        if len(self.keys) == BUFFER:
            self._write()

    def _write(self) -> None:
        rows = np.stack([np.array(self.keys, dtype=np.uint64), np.array(self.lines, dtype=np.uint64)], axis=1)
        buckets = rows[:, 0] % np.uint64(len(self.paths))
        order = np.argsort(buckets, kind="stable")
        ends = np.searchsorted(buckets[order], np.arange(len(self.paths) + 1))
        for path, first, end in zip(self.paths, ends, ends[1:]):
            if end > first:
                with open(path, "ab") as file:
                    file.write(rows[order[first:end]].tobytes())
        self.keys, self.lines = [], []

    def mark(self, flags: Path, value: int) -> None:
        """Sets the byte of each line whose key occurred before, in a file with a byte for each line."""
        self._write()
        with open(flags, "r+b") as file:
            for path in self.paths:
                keys, lines = np.fromfile(path, dtype=np.uint64).reshape(-1, 2).T
                repeated = np.ones(len(keys), dtype=bool)
                repeated[np.unique(keys, return_index=True)[1]] = False
                for line in lines[repeated].tolist():
                    file.seek(line)
                    file.write(bytes([value]))
                path.unlink()
