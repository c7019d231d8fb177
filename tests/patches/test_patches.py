"""Patches of fairseq's training, data loading and beam search."""

import contextlib
import gc
import itertools
import math
import multiprocessing
import os
import signal
import subprocess
import sys
from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.data import iterators
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager
from fairseq.models import distributed_fairseq_model

from fairseq_xl import patches
from fairseq_xl.errors import UserError
from fairseq_xl.patches import processes, training
from tests.waits import Waits
from tests.warm_python import python


@pytest.fixture(autouse=True, scope="module")
def installed():
    patches.install()


def test_installing_twice_changes_nothing():
    patched = [PathManager.copy, checkpoint_utils.torch_persistent_save, checkpoint_utils.load_checkpoint_to_cpu]
    hook = sys.excepthook
    patches.install()
    again = [PathManager.copy, checkpoint_utils.torch_persistent_save, checkpoint_utils.load_checkpoint_to_cpu]
    assert patched == again and sys.excepthook is hook


def test_an_explosion_in_a_task_of_fairseqs(tmp_path):
    def step(self, samples, raise_oom):
        raise FloatingPointError("gradients are Nan/Inf")

    cfg = SimpleNamespace(checkpoint=SimpleNamespace(save_dir=str(tmp_path)))
    trainer = SimpleNamespace(task=object(), get_num_updates=lambda: 4, checkpoint_suffix="", cfg=cfg)
    with pytest.raises(UserError, match="^update 5: gradients are NaN or infinite; no checkpoint has been saved"):
        training._report_divergence(step)(trainer, [{"net_input": {}}])


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


def begin_alone():
    """Makes a process group of this process alone."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)


def end_alone():
    """Ends the process group, and makes fairseq forget it."""
    torch.distributed.destroy_process_group()
    vars(distributed_utils.get_global_group).pop("_global_group", None)


@pytest.fixture
def alone(monkeypatch):
    """A process group of this process alone, which takes itself for two ranks on GPUs."""
    begin_alone()
    monkeypatch.setattr(torch.distributed, "get_backend", lambda group: "nccl")
    monkeypatch.setattr(distributed_utils, "get_data_parallel_world_size", lambda: 2)
    yield
    end_alone()
    processes._host_group.cache_clear()


@pytest.fixture
def groups(alone, monkeypatch):
    """The arguments with which groups are made: fairseq's of all ranks, and those on the host."""
    found, new_group = [], torch.distributed.new_group
    recorded = lambda *args, **named: found.append(named) or new_group(*args, **named)  # noqa: E731
    monkeypatch.setattr(torch.distributed, "new_group", recorded)
    return found


#: fairseq's group, one that shows whether the ranks can connect, and one for all updates
GROUPS = [{}, {"backend": "gloo", "timeout": timedelta(seconds=60)}, {"backend": "gloo"}]


def test_flags_of_ranks_on_gpus_are_exchanged_on_the_host_without_a_sync(groups):
    with Waits() as waits:
        assert processes.any_rank([True, False, True]) == [True, False, True]
        assert processes.any_rank([False]) == [False]
    assert not waits.found
    assert groups == GROUPS


class TwoHeads(torch.nn.Module):
    """`heads[number]` of an input, or of a frozen layer before it."""

    may_skip_parameters = True

    def __init__(self):
        super().__init__()
        self.frozen = torch.nn.Linear(2, 2).requires_grad_(False)
        self.heads = torch.nn.ModuleList([torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)])

    def forward(self, inputs, number):
        return {"loss": self.heads[number](self.frozen(inputs)).sum(), "size": len(inputs), "more": [inputs]}


@pytest.mark.parametrize("as_views", [False, True])
def test_pytorch_ddp_leaves_unused_gradients_none_without_looking_for_them(as_views, alone):
    """With find_unused_parameters torch's reducer would wait for the device, where no test sees it."""
    torch.manual_seed(0)
    module, alike = TwoHeads(), TwoHeads()
    alike.load_state_dict(module.state_dict())
    options = {"find_unused_parameters": True, "gradient_as_bucket_view": as_views}
    model = distributed_fairseq_model.DistributedDataParallel(module, **options)
    inputs = torch.ones(3, 2)
    assert not model.find_unused_parameters
    for numbers in ([0], [1, 0], [1], [1, 1], [0]):
        for each in (*module.parameters(), *alike.parameters()):
            each.grad = None
        for position, number in enumerate(numbers):
            with contextlib.nullcontext() if position == len(numbers) - 1 else model.no_sync():
                found = model(inputs, number)
                found["loss"].backward()
            alike(inputs, number)["loss"].backward()
        assert found["size"] == 3 and found["more"][0] is inputs
        model.all_reduce_grads()
        for found, expected in zip(module.parameters(), alike.parameters(), strict=True):
            assert (found.grad is None) == (expected.grad is None)
            assert found.grad is None or torch.equal(found.grad, expected.grad)
        assert [head.weight.grad is not None for head in module.heads] == [0 in numbers, 1 in numbers]


def test_flags_are_not_exchanged_in_a_group_of_an_ended_process_group(groups):
    for _ in range(2):
        assert processes.any_rank([True, False]) == [True, False]
        end_alone()
        begin_alone()
    assert groups == GROUPS * 2


def _connect_as(rank, folder, failing, writer):
    """Joins two ranks, which take themselves for ones on GPUs; those of `failing` have a wrong network interface."""

    def join(cfg):
        torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", world_size=2, rank=rank)
        distributed_utils.get_global_group()  # NCCL's, on GPUs
        if rank in failing:
            os.environ["GLOO_SOCKET_IFNAME"] = "absent7"
        return rank

    cfg = SimpleNamespace(optimizer="adam", common=SimpleNamespace(tpu=False))
    try:
        writer.send(processes._connect(join)(cfg))
    except UserError as error:
        writer.send(str(error))


@pytest.mark.parametrize("failing", [(), (1,), (0, 1)])
def test_gloo_connects_before_training_or_every_rank_says_why(failing, tmp_path, monkeypatch):
    """Where one of two ranks fails, the other one does not wait for long."""
    monkeypatch.setattr(processes, "SECONDS_TO_CONNECT", 1)
    monkeypatch.setattr(torch.distributed, "get_backend", lambda group: "nccl")
    context, readers = multiprocessing.get_context("fork"), []
    ranks = []
    for rank in range(2):
        reader, writer = context.Pipe(duplex=False)
        ranks.append(context.Process(target=_connect_as, args=(rank, tmp_path, failing, writer)))
        ranks[-1].start()
        readers.append(reader)
    try:
        assert all(reader.poll(60) for reader in readers)
        found = [reader.recv() for reader in readers]
    finally:
        for process in ranks:
            process.kill()
            process.join()
    advice = "set GLOO_SOCKET_IFNAME to the network interface"
    for rank, answer in enumerate(found):
        if not failing:
            assert answer == rank
            continue
        reason = "ifa != nullptr. Unable to find address for: absent7" if rank in failing else "Wait timeout"
        assert answer.startswith(f"the processes cannot reach each other through gloo ({reason}): {advice}")
