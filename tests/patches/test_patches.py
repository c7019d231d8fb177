"""Patches of fairseq's data loading and beam search."""

import gc
import itertools
import math
import multiprocessing
import os
import signal
import subprocess
import sys

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.data import iterators
from fairseq.distributed import utils as distributed_utils

from fairseq_xl import patches
from tests.warm_python import python


@pytest.fixture(autouse=True, scope="module")
def installed():
    patches.install()


def test_installing_twice_changes_nothing():
    patched, hook = [distributed_utils.call_main, checkpoint_utils.load_checkpoint_to_cpu], sys.excepthook
    patches.install()
    assert patched == [distributed_utils.call_main, checkpoint_utils.load_checkpoint_to_cpu] and sys.excepthook is hook


def test_workers_end_with_the_last_batch():
    """Those of a DataLoader that the garbage collector finds first are waited for five seconds each."""
    loader = iterators.torch.utils.data.DataLoader([0, 1, 2], num_workers=2)
    before = set(multiprocessing.active_children())
    gc.disable()
    try:
        buffered = iterators.BufferedIterator(2, loader)
        batches = iterators.CountingIterator(buffered)  # which refers to itself
        assert len(list(itertools.islice(batches, 3))) == 3  # as many as there are: the end is not asked for
        buffered._consumer.join()
        assert set(multiprocessing.active_children()) <= before
    finally:
        gc.enable()


def test_workers_outlive_a_signal_from_their_start(monkeypatch):
    """One to the whole process group, such as the end of a job, may come before a worker can ignore it."""
    prepare = torch.utils.data._utils.signal_handling._set_worker_signal_handlers

    def signaled():  # the first that a worker does
        prepare()
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)

    monkeypatch.setattr(torch.utils.data._utils.signal_handling, "_set_worker_signal_handlers", signaled)
    assert list(iterators.torch.utils.data.DataLoader([0, 1, 2], num_workers=1)) == [0, 1, 2]
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])  # here they are not blocked


def test_python_ends_while_a_thread_reads_ahead():
    """A thread that wakes up inside torch after Python's end would abort the process: status -6, not 0."""
    code = """
import sys, time, torch
from fairseq.data.iterators import BufferedIterator
if "adapted" in sys.argv:
    import fairseq_xl
    fairseq_xl.register()
class Endless:
    def __len__(self):
        return sys.maxsize
    def __iter__(self):
        batch = torch.zeros(300, 300)
        while True:
            batch = batch @ batch
            yield None
class LongEnd:
    sleep = time.sleep
    def __del__(self):
        self.sleep(0.5)
long_end = LongEnd()
next(BufferedIterator(sys.maxsize, Endless()))
"""

    def status(*arguments):
        command = [python(), "-c", code, *arguments]
        return subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True).returncode

    assert status("adapted") == 0
    if sys.version_info < (3, 14):
        assert status() == -6  # a later Python leaves such threads asleep


def test_no_ngram_is_written_twice():
    """In fairseq's buffer, which is padded: after a b c b, c is forbidden, and after a a a, a."""
    from fairseq.ngram_repeat_block import NGramRepeatBlock

    tokens = torch.tensor([[2, 5, 6, 7, 6, 1, 1, 1], [2, 8, 5, 5, 5, 1, 1, 1], [2, 5, 6, 7, 8, 1, 1, 1]])
    scores = NGramRepeatBlock(2)(tokens, torch.zeros(3, 9), bsz=3, beam_size=1, step=4)
    assert [(row == -math.inf).nonzero().flatten().tolist() for row in scores] == [[7], [5], []]
