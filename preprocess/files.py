"""Reads text in blocks, writes files atomically, and maps functions over blocks in parallel and in order."""

import multiprocessing
import os
import shutil
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import BinaryIO

from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io import bounds
from fairseq_xl.io.compressed import text_of
from fairseq_xl.io.signals import ENDING
from fairseq_xl.io.text import texts_of

BLOCK = 1 << 20  # bytes: small enough for many in memory, large enough for little overhead per block


def read_blocks(path: Path, progress: Callable[[int], object] | None = None) -> Iterator[bytes]:
    r"""Yields blocks of whole lines, about BLOCK bytes, decompressed; only b"\n" ends a line, and the last may lack it.

    `progress` is called with the number of bytes read from the file since its last call. Raises UserError for a line
    of more than `bounds.LONGEST_LINE` bytes and for damaged compressed data.
    """
    with open(path, "rb") as file:
        reported = 0

        def report() -> None:
            nonlocal reported
            if progress:
                progress(file.tell() - reported)
                reported = file.tell()

        yield from _blocks_of(text_of(file), path, report=report)


def texts_in(path: Path) -> Iterator[str]:
    """Yields the lines of a file, stripped."""
    for block in read_blocks(path):
        yield from texts_of(block)


def _blocks_of(
    text: BinaryIO, path: Path, most: int | None = None, report: Callable[[], None] = lambda: None
) -> Iterator[bytes]:
    """Yields blocks of whole lines from the position of an open file on, of `most` bytes (None: to its end)."""
    rest = []
    while block := text.read(BLOCK if most is None else min(BLOCK, most)):
        most = None if most is None else most - len(block)
        report()
        end = block.rfind(b"\n") + 1
        if not end:
            rest.append(block)
            if len(rest) * BLOCK > bounds.LONGEST_LINE:
                raise UserError(
                    f"{path} has a line of more than {bounds.LONGEST_LINE >> 20} MiB: is it text? It begins with "
                    f"{quoted(rest[0][:40].decode('utf-8', 'replace'))}"
                )
            continue
        yield b"".join([*rest, block[:end]])
        rest = [block[end:]] if end < len(block) else []
    if rest:
        yield b"".join(rest)


class Sections:
    """Reads sections of files; a context manager, which closes the file.

    A file whose sections are read in order is read once: a compressed file cannot be opened at an offset.
    """

    def __init__(self) -> None:
        self.path: Path | None = None
        self.file: BinaryIO | None = None
        self.text: BinaryIO | None = None
        self.position: int | None = None  # byte offset in the decompressed text; None within a block

    def __enter__(self) -> "Sections":
        return self

    def __exit__(self, *_: object) -> None:
        if self.file:
            self.file.close()

    def blocks(self, path: Path, begin: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yields blocks, as `read_blocks`, of the bytes [begin, end) of a file's text, which are whole lines."""
        if path != self.path or self.position is None or self.position > begin:
            self.__exit__()
            self.path, self.file, self.position = path, open(path, "rb"), 0  # noqa: SIM115 (closed by __exit__)
            self.text = text_of(self.file)
        assert self.file is not None and self.text is not None, "opened above or before"
        before, self.position = self.position, None
        if self.text is self.file:
            self.file.seek(begin)
        else:
            while before < begin and (skipped := self.text.read(min(BLOCK, begin - before))):
                before += len(skipped)
        yield from _blocks_of(self.text, path, None if end is None else end - begin)
        self.position = end


def replace_folder(new: Path, old: Path) -> None:
    """Replaces the folder `old` by `new`. A kill in between leaves neither, never a mixture of both."""
    discarded = _discarded(new)
    shutil.rmtree(discarded, ignore_errors=True)
    if old.exists():
        os.replace(old, discarded)
    os.replace(new, old)
    shutil.rmtree(discarded, ignore_errors=True)


def restore_folder(new: Path, old: Path) -> None:
    """Puts `old` back if a kill in `replace_folder(new, old)` left neither."""
    if _discarded(new).exists() and not old.exists():
        os.replace(_discarded(new), old)


def _discarded(new: Path) -> Path:
    return new.with_name(new.name + ".old")


def link(path: Path, folder: Path) -> None:
    """Makes a hard link to a file, or to all files of a folder, in `folder`; copies where links are not possible."""

    def link_file(source: str, target: str) -> None:
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)

    if path.is_dir():
        shutil.copytree(path, folder / path.name, copy_function=link_file)
    else:
        link_file(str(path), str(folder / path.name))


def _start_worker(initializer: Callable | None, arguments: tuple) -> None:
    # only the parent handles Ctrl-C; the thread ends the worker if the parent is killed
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for signal_number in ENDING:
        signal.signal(signal_number, signal.SIG_DFL)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    if initializer:
        initializer(*arguments)


def _leave_with_parent() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()
    os._exit(1)


class Workers:
    """Processes that map a function over blocks in order, at most a few blocks ahead of the consumer.

    `multiprocessing.Pool.imap` reads its whole input ahead, and hangs if a process is killed. Processes start at the
    first block; one worker is this process.
    """

    def __init__(self, count: int, initializer: Callable | None = None, arguments: tuple = ()):
        self.count, self.initializer, self.arguments = count, initializer, arguments
        self.pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        if self.pool:
            self.pool.shutdown(cancel_futures=True)

    def map(self, function: Callable, items: Iterable) -> Iterator:
        """Yields `function` of every item, in order; raises UserError if a process is killed."""
        if self.count == 1:
            if self.initializer:
                self.initializer(*self.arguments)
            yield from map(function, items)
            return
        if not self.pool:
            arguments = (self.initializer, self.arguments)
            self.pool = ProcessPoolExecutor(self.count, initializer=_start_worker, initargs=arguments)
        pending = deque()
        try:
            for item in items:
                pending.append(self.pool.submit(function, item))
                if len(pending) > 2 * self.count:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except BrokenProcessPool as error:
            raise UserError("A worker process was killed, perhaps for lack of memory: try fewer --jobs") from error
