"""Loads the batches of an epoch: workers that outlive signals, and a thread that reads ahead."""

import os
import signal
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from fairseq.data import iterators
from torch.utils.data import DataLoader

_END = object()  # follows the last batch


class EpochBatches(iterators.EpochBatchIterator):
    """fairseq's iterator over the batches of epochs, with this module's data loader."""

    def _get_iterator_for_epoch(
        self, epoch: int, shuffle: bool, fix_batches_to_gpus: bool = False, offset: int = 0
    ) -> iterators.CountingIterator | None:
        """The batches of an epoch after the first `offset`; None if none is left."""
        order = (self.ordered_batches, epoch, fix_batches_to_gpus, shuffle)
        sampler = iterators.FrozenBatchSampler(*order, initial_offset=offset)
        if offset and not len(sampler):
            return None
        loader = DataLoader(
            self.dataset,
            batch_sampler=sampler,
            collate_fn=self.collate_fn,
            num_workers=self.num_workers,
            pin_memory=torch.cuda.is_initialized(),
            worker_init_fn=_leave_signals_to_the_parent,
        )
        total = offset + len(sampler) - bool(self.skip_remainder_batch)
        return iterators.CountingIterator(_read_ahead(loader, self.buffer_size), start=offset, total=total)


def options_of(iterator: iterators.EpochBatchIterator) -> dict[str, Any]:
    """The options of fairseq's iterator with which `EpochBatches` makes the same batches."""
    names = ("seed", "num_shards", "shard_id", "num_workers", "epoch", "buffer_size", "skip_remainder_batch")
    return {name: getattr(iterator, name) for name in (*names, "grouped_shuffling")}


def _read_ahead(loader: DataLoader, size: int) -> Iterator[Any]:
    """Yields the batches of a loader, of which a thread reads `size`, at least one, ahead.

    The workers of the loader end before its last batch is used. Python waits at its end for the
    thread of an executor; it aborts where a thread is inside torch.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])
    try:
        batches = iter(loader)  # starts the workers, which a signal would end before they can ignore it
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    with ThreadPoolExecutor(1) as thread:
        if torch.cuda.is_initialized():
            thread.submit(torch.cuda.set_device, torch.cuda.current_device())  # where memory is pinned
        ready = deque(thread.submit(next, batches, _END) for _ in range(max(1, size)))
        try:
            for left in reversed(range(len(loader))):
                batch = ready.popleft().result()
                ready.append(thread.submit(next, batches, _END))
                if not left:
                    ready[0].result()  # ends the workers
                yield batch
        finally:
            for future in ready:
                future.cancel()


def _leave_signals_to_the_parent(worker: int) -> None:
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
