"""Loads the batches of an epoch with workers that ignore signals, and a thread that reads ahead."""

import os
import signal
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from fairseq_xl.errors import UserError

_END = object()  # follows the last batch


class ErrorsAsItems(Dataset[Any]):
    """A dataset that returns a `UserError` as an item, which `read_ahead` raises: a worker would add a traceback."""

    def __init__(self, dataset: Any):
        self.dataset = dataset

    def __getitem__(self, index: Any) -> Any:
        try:
            return self.dataset[index]
        except UserError as error:
            return error


def read_ahead(loader: DataLoader, size: int) -> Iterator[Any]:
    """Yields the batches of a loader of `ErrorsAsItems`; a thread reads `size` of them ahead, at least one.

    The workers of the loader end before its last batch is used. Python waits at its end for the thread of an executor;
    it aborts where a thread is inside torch. An abandoned iteration may be collected in any thread, so nothing waits
    here then: the thread ends when its executor is collected.
    """
    old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])
    try:
        batches = iter(loader)  # starts the workers, which a signal would end before they can ignore it
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)
    thread = ThreadPoolExecutor(1)
    if torch.cuda.is_initialized():
        thread.submit(torch.cuda.set_device, torch.cuda.current_device())  # where memory is pinned
    ready = deque(thread.submit(next, batches, _END) for _ in range(max(1, size)))
    try:
        for remaining in reversed(range(len(loader))):
            batch = ready.popleft().result()
            if isinstance(batch, UserError):
                raise batch
            ready.append(thread.submit(next, batches, _END))
            if not remaining:
                ready[0].result()  # ends the workers
            yield batch
    finally:
        for future in ready:
            future.cancel()


def leave_signals_to_the_parent(worker: int) -> None:
    """Makes a worker ignore SIGINT, and SIGTERM unless its parent sends it.

    Ctrl-C and the end of a job signal every process, and training needs its workers until it has saved. The parent ends
    them with SIGTERM, after an error for example, and waits for them.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])

    def end_with_parent() -> None:
        """Waits for SIGTERM from the parent, and ends the process."""
        while signal.sigwaitinfo([signal.SIGTERM]).si_pid != os.getppid():
            pass
        os._exit(0)

    threading.Thread(target=end_with_parent, daemon=True).start()
