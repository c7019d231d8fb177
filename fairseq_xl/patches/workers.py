"""What reads data: processes (--num-workers) outlive the signals that stop training, threads end before Python does."""

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

_reading = weakref.WeakSet()  # the threads that read ahead


def install() -> None:
    """fairseq's iterators get our threads, and a DataLoader with a `worker_init_fn`, for which fairseq has no room."""
    loader = functools.partial(_DataLoader, worker_init_fn=_leave_signals_to_the_parent)
    data = _seen_with(torch.utils.data, DataLoader=loader)
    iterators.torch = _seen_with(torch, utils=_seen_with(torch.utils, data=data))
    iterators.BackgroundConsumer = _ReadsAhead
    atexit.register(_end_reading)


class _DataLoader(torch.utils.data.DataLoader):
    """torch's, whose workers start with signals blocked: one before `_leave_signals_to_the_parent` would end them."""

    def __iter__(self):
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])
        try:
            return super().__iter__()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _ReadsAhead(iterators.BackgroundConsumer):
    """fairseq's thread that reads ahead, with an end.

    When Python ends while a thread is inside torch, the process aborts, and a training that has saved exits with 134.
    With its last batch it lets go of what it reads from: a DataLoader that is left to the garbage collector waits five
    seconds for each of its workers, at the end of every epoch.
    """

    def __init__(self, batches, source, *others):
        ended = threading.Event()
        super().__init__(batches, itertools.takewhile(lambda _: not ended.is_set(), source), *others)
        self._ended = ended
        _reading.add(self)

    def run(self) -> None:
        """fairseq's, which puts batches into the queue."""
        try:
            super().run()
        finally:
            self._source = None

    def end(self) -> None:
        """Wait for the batch in progress, and throw away what nobody asked for."""
        self._ended.set()
        while self.is_alive():
            with contextlib.suppress(queue.Empty):  # room, should it wait to put a batch in
                self._queue.get(timeout=0.1)


def _end_reading() -> None:
    for thread in list(_reading):
        thread.end()


def _seen_with(module: types.ModuleType, **replaced) -> types.ModuleType:
    """The module as another one sees it: the same but for what is replaced."""
    view = types.ModuleType(module.__name__)
    view.__getattr__ = functools.partial(getattr, module)
    vars(view).update(replaced)
    return view


def _leave_signals_to_the_parent(worker: int) -> None:
    """A Ctrl-C, and what ends a job, go to every process: training needs its workers until it has saved.

    The parent ends them with SIGTERM too, after a mistake for example, and waits for their end: that one they obey.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])

    def obey_parent():
        while signal.sigwaitinfo([signal.SIGTERM]).si_pid != os.getppid():
            pass
        os._exit(0)

    threading.Thread(target=obey_parent, daemon=True).start()
