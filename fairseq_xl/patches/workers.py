"""Patches of data loading: worker processes outlive signals that stop training; threads end before Python does."""

import atexit
import contextlib
import functools
import itertools
import os
import queue
import signal
import threading
import types
import weakref

import torch
from fairseq.data import iterators

_threads = weakref.WeakSet()  # those that read ahead


def install() -> None:
    """Gives fairseq's iterators our thread, and a DataLoader with a `worker_init_fn`, which fairseq cannot pass."""
    loader = functools.partial(_DataLoader, worker_init_fn=_leave_signals_to_the_parent)
    data = _view(torch.utils.data, DataLoader=loader)
    iterators.torch = _view(torch, utils=_view(torch.utils, data=data))
    iterators.BackgroundConsumer = _ReadsAhead
    atexit.register(_end_reading)


class _DataLoader(torch.utils.data.DataLoader):
    """Starts its workers with signals blocked: a signal before `_leave_signals_to_the_parent` would end them."""

    def __iter__(self):
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])
        try:
            return super().__iter__()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _ReadsAhead(iterators.BackgroundConsumer):
    """fairseq's thread that reads ahead; it can be ended, and releases its DataLoader after the last batch.

    When Python ends while a thread is inside torch, the process aborts: a training that has saved exits with 134. A
    DataLoader that is left to the garbage collector waits five seconds for each of its workers in every epoch.
    """

    def __init__(self, batches, source, *others):
        ended = threading.Event()
        super().__init__(batches, itertools.takewhile(lambda _: not ended.is_set(), source), *others)
        self._ended = ended
        _threads.add(self)

    def run(self) -> None:
        """Puts batches into the queue."""
        try:
            super().run()
        finally:
            self._source = None

    def end(self) -> None:
        """Waits for the batch in progress and discards the batches in the queue."""
        self._ended.set()
        while self.is_alive():
            with contextlib.suppress(queue.Empty):  # makes room for a batch that it waits to put in
                self._queue.get(timeout=0.1)


def _end_reading() -> None:
    for thread in list(_threads):
        thread.end()


def _view(module: types.ModuleType, **replaced) -> types.ModuleType:
    """A module with the same attributes as `module` except those that are replaced."""
    view = types.ModuleType(module.__name__)
    view.__getattr__ = functools.partial(getattr, module)
    vars(view).update(replaced)
    return view


def _leave_signals_to_the_parent(worker: int) -> None:
    """Makes a worker ignore SIGINT, and SIGTERM unless its parent sends it.

    Ctrl-C and the end of a job signal every process, and training needs its workers until it has saved. The parent ends
    them with SIGTERM, after an error for example, and waits for them.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])

    def end_with_parent():
        """Waits for SIGTERM from the parent, and ends the process."""
        while signal.sigwaitinfo([signal.SIGTERM]).si_pid != os.getppid():
            pass
        os._exit(0)

    threading.Thread(target=end_with_parent, daemon=True).start()
