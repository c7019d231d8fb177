"""The data loader: fairseq's batches, workers that outlive signals, a thread that ends before Python does."""

import gc
import itertools
import multiprocessing
import os
import signal
import subprocess
import threading

import pytest
import torch
from fairseq.data import FairseqDataset, iterators

from fairseq_xl.engine.epochs import Epochs
from tests.warm_python import python


class Numbers:
    def __getitem__(self, number):
        if number < 0:
            raise LookupError(number)
        return number


def epochs(numbers=range(20), **options):
    """Batches that are numbers, the same in each epoch."""
    return Epochs(Numbers(), lambda *_: list(numbers), **{"buffer_size": 4, **options})


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("size", [0, 4])
def test_batches_and_states_are_those_of_fairseq(workers, size):
    """Two epochs on the second of three ranks, which stop after four batches, and a run that goes on from there."""

    class Dataset(FairseqDataset):
        __getitem__ = Numbers.__getitem__

    def fairseqs():
        batches = [[number] for number in range(21)]
        shard = {"num_shards": 3, "shard_id": 1, "num_workers": workers, "buffer_size": size}
        return iterators.EpochBatchIterator(Dataset(), sum, batches, disable_shuffling=True, **shard)

    def ours():
        return epochs(range(21), ranks=3, rank=1, num_workers=workers, buffer_size=size)

    seen = []
    for make in (fairseqs, ours):
        first = make()
        seen.append([list(first.next_epoch_itr()) for _ in range(2)])
        seen[-1].append(list(itertools.islice(first.next_epoch_itr(), 4)))
        resumed = make()
        resumed.load_state_dict(first.state_dict())
        states = [{name: value for name, value in first.state_dict().items() if name not in ("shuffle", "version")}]
        seen[-1] += [states, list(resumed.next_epoch_itr()), resumed.state_dict()["epoch"], len(first)]
    assert seen[0] == seen[1]


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_comes_after_the_batches_before_it(workers):
    batches = epochs([5, -1, 6], num_workers=workers).next_epoch_itr(shuffle=False)
    assert next(batches) == 5
    with pytest.raises(LookupError):
        next(batches)


def test_workers_end_with_the_last_batch():
    """Those of a DataLoader that the garbage collector finds first are waited for five seconds each."""
    before = set(multiprocessing.active_children())
    gc.disable()
    try:
        batches = epochs(num_workers=2).next_epoch_itr()
        next(batches)
        assert len(set(multiprocessing.active_children()) - before) == 2
        assert len(list(itertools.islice(batches, 19))) == 19  # as many as there are: the end is not asked for
        assert set(multiprocessing.active_children()) <= before
    finally:
        gc.enable()


def test_an_iteration_that_is_given_up_waits_for_no_thread():
    """The garbage collector may find it inside a lock of `threading`, as in the start of a thread."""
    resume, given_up = threading.Event(), threading.Event()

    class Slow:
        def __getitem__(self, number):
            assert number == 0 or resume.wait(60)
            return number

    batches = Epochs(Slow(), lambda *_: range(9)).next_epoch_itr()
    assert next(batches) == 0
    closing = threading.Thread(target=lambda: (batches._itr.close(), given_up.set()))
    closing.start()
    closed = given_up.wait(30)
    resume.set()
    closing.join()
    assert closed


def test_workers_outlive_a_signal_from_their_start(monkeypatch):
    """One to the whole process group, such as the end of a job, may come before a worker can ignore it."""
    prepare = torch.utils.data._utils.signal_handling._set_worker_signal_handlers

    def signaled():  # the first that a worker does
        prepare()
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)

    monkeypatch.setattr(torch.utils.data._utils.signal_handling, "_set_worker_signal_handlers", signaled)
    assert list(epochs(num_workers=1).next_epoch_itr(shuffle=False)) == list(range(20))
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])  # here they are not blocked


def test_python_ends_while_a_thread_reads_ahead():
    """A thread that wakes up inside torch after Python's end would abort the process: status -6."""
    code = """
import time, torch
from fairseq_xl.engine.epochs import Epochs
from torch.utils.data import Dataset
class Products(Dataset):
    def __getitem__(self, index):
        batch = torch.zeros(300, 300)
        for _ in range(200):
            batch = batch @ batch
        return batch
class LongEnd:
    sleep = time.sleep
    def __del__(self):
        self.sleep(0.5)
long_end = LongEnd()
batches = Epochs(Products(), lambda *_: range(1000), buffer_size=4).next_epoch_itr()
next(batches)
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    assert subprocess.run([python(), "-c", code], env=environment, capture_output=True).returncode == 0
