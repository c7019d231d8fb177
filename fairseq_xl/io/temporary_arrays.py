"""Arrays, strings and sorted records in temporary files of a folder, or in memory. Imports neither torch nor fairseq.

The files have no directory entry: the OS frees them once they are closed and unmapped, also if the process is killed.
They are memory-mapped, so the OS decides how much of them is cached. Rows are written before they are mapped, so that a
full disk raises `UserError`; a write to a mapping would end the process (SIGBUS).
"""

import contextlib
import heapq
import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar, overload

import numpy as np
from numpy.typing import DTypeLike

from fairseq_xl.errors import UserError
from fairseq_xl.io.files import room_problem

BLOCK = 1 << 15  # rows, strings or records in memory at a time
RUN_RECORDS = 1 << 20  # least number of records of a sorted run
MERGE_RECORDS = 1 << 17  # records in memory while runs are merged


Item = TypeVar("Item")


def slices(count: int, size: int | None = None) -> Iterator[slice]:
    """Yields slices of at most `size` (default: `BLOCK`) that cover the numbers below `count`, in order."""
    size = size or BLOCK
    return (slice(first, min(first + size, count)) for first in range(0, count, size))


class GrowingArray:
    """An array of rows of a shape that grows at its end, in a temporary file of a folder, or in memory without one."""

    def __init__(self, folder: Path | None, dtype: DTypeLike, *row: int):
        self.folder, self.dtype, self.row = folder, np.dtype(dtype), row
        self.parts: list[np.ndarray] = []
        self.file: IO[bytes] | None = None if folder is None else tempfile.TemporaryFile(dir=folder)  # noqa: SIM115

    def append(self, rows: Any) -> None:
        """Adds rows (n, *row); raises `UserError` for a full disk."""
        rows = np.ascontiguousarray(rows, self.dtype).reshape(-1, *self.row)
        if self.file is None:
            self.parts.append(rows)
        else:
            with self._naming_folder():
                self.file.write(rows.data)

    def finish(self, writable: bool = False) -> np.ndarray:
        """The array (N, *row), mapped if it is in a file. Nothing can be appended afterwards."""
        if self.file is None:
            return np.concatenate([np.empty((0, *self.row), self.dtype), *self.parts])
        with self._naming_folder(), self.file as file:
            file.flush()  # what is left in the buffer
            if not file.tell():
                return np.empty((0, *self.row), self.dtype)
            flat = np.memmap(file, self.dtype, "r+" if writable else "r")
        return np.asarray(flat).reshape(-1, *self.row)

    @contextlib.contextmanager
    def _naming_folder(self) -> Iterator[None]:
        """Turns the error of a full disk into a `UserError` that names the folder."""
        try:
            yield
        except OSError as error:
            if reason := room_problem(error):
                raise UserError(f"{self.folder}: {reason}") from error
            raise


def full(folder: Path | None, dtype: DTypeLike, value: int, count: int, *row: int) -> np.ndarray:
    """An array (count, *row) of one value that can be written to; raises `UserError` for a full disk."""
    array = GrowingArray(folder, dtype, *row)
    for rows in slices(count):
        array.append(np.full((rows.stop - rows.start, *row), value, dtype))
    return array.finish(writable=True)


def records(items: Iterable[tuple], folder: Path | None, dtype: DTypeLike) -> np.ndarray:
    """Writes tuples to a structured array (n,), one block in memory at a time."""
    array, remaining = GrowingArray(folder, dtype), iter(items)
    while block := list(itertools.islice(remaining, BLOCK)):
        array.append(np.array(block, dtype))
    return array.finish()


class LazySequence(Sequence[Item]):
    """Sequence read on demand by `read`, (first, end) -> list of items: iteration reads a block, a slice is a list."""

    def __init__(self, length: int, read: Callable[[int, int], list[Item]]):
        self.length, self.read = length, read

    def __len__(self) -> int:
        return self.length

    @overload
    def __getitem__(self, number: int, /) -> Item: ...
    @overload
    def __getitem__(self, number: slice, /) -> list[Item]: ...
    def __getitem__(self, number: int | slice, /) -> Item | list[Item]:
        if isinstance(number, slice):
            first, end, step = number.indices(self.length)
            if step != 1:
                raise ValueError(f"expected a slice without a step, found the step {step}")
            return self.read(first, max(first, end))
        position = range(self.length)[number]
        return self.read(position, position + 1)[0]

    def __iter__(self) -> Iterator[Item]:
        for block in slices(self.length):
            yield from self.read(block.start, block.stop)


class GrowingStrings:
    """A sequence of strings that grows at its end; arguments as for `GrowingArray`."""

    def __init__(self, folder: Path | None):
        self.in_memory: list[str] | None = [] if folder is None else None
        self.text, self.offsets, self.size = GrowingArray(folder, np.uint8), GrowingArray(folder, np.int64), 0
        self.offsets.append([0])

    def extend(self, strings: Sequence[str]) -> None:
        """Adds strings; raises `UserError` for a full disk."""
        if self.in_memory is not None:
            self.in_memory.extend(strings)
            return
        encoded = [string.encode() for string in strings]
        ends = self.size + np.cumsum([len(text) for text in encoded], dtype=np.int64)
        self.text.append(np.frombuffer(b"".join(encoded), np.uint8))
        self.offsets.append(ends)
        self.size = int(ends[-1]) if len(ends) else self.size

    def finish(self) -> Sequence[str]:
        """The strings: a list, or a `LazySequence` of UTF-8 and 8 bytes for each. Nothing can be added afterwards."""
        if self.in_memory is not None:
            return self.in_memory
        text, offsets = self.text.finish(), self.offsets.finish()

        def read(first: int, end: int) -> list[str]:
            begin, *ends = offsets[first : end + 1].tolist()
            content = text[begin : ends[-1] if ends else begin].tobytes()
            bounds = itertools.pairwise(place - begin for place in (begin, *ends))
            return [content[start:stop].decode() for start, stop in bounds]

        return LazySequence(len(offsets) - 1, read)


def sorted_records(blocks: Iterable[np.ndarray], dtype: DTypeLike, folder: Path | None) -> Iterator[tuple]:
    """Yields the records of structured arrays as tuples, sorted by their fields in order.

    The fields of the `blocks`, arrays (b,), are numbers other than NaN. With a `folder`, runs of at least `RUN_RECORDS`
    records are sorted in memory and written to a temporary file there. Raises `UserError` for a full disk.
    """
    if folder is None:
        return _tuples(_sorted(np.concatenate([np.empty(0, dtype), *blocks])), MERGE_RECORDS)
    runs, ends = GrowingArray(folder, dtype), [0]
    waiting: list[np.ndarray] = []
    for block in itertools.chain(blocks, [None]):
        waiting += [] if block is None else [block]
        if waiting and (block is None or sum(map(len, waiting)) >= RUN_RECORDS):
            runs.append(_sorted(np.concatenate(waiting)))
            ends.append(ends[-1] + sum(map(len, waiting)))
            waiting = []
    records = runs.finish()
    size = max(1, MERGE_RECORDS // len(ends))
    return heapq.merge(*(_tuples(records[first:end], size) for first, end in itertools.pairwise(ends)))


def _sorted(run: np.ndarray) -> np.ndarray:
    """Records (n,), sorted by their fields in order."""
    fields = run.dtype.names
    assert fields, "records have fields"
    return run[np.lexsort([run[field] for field in reversed(fields)])]


def _tuples(run: np.ndarray, size: int) -> Iterator[tuple]:
    for rows in slices(len(run), size):
        yield from run[rows].tolist()
