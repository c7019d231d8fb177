"""Processes that load data (--num-workers) outlive the signals that stop training."""

import functools
import os
import signal
import threading
import types

import torch
from fairseq.data import iterators


def install() -> None:
    """fairseq leaves no room for a `worker_init_fn`: its iterators get a DataLoader that has one."""
    loader = functools.partial(torch.utils.data.DataLoader, worker_init_fn=_leave_signals_to_the_parent)
    data = _seen_with(torch.utils.data, DataLoader=loader)
    iterators.torch = _seen_with(torch, utils=_seen_with(torch.utils, data=data))


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
