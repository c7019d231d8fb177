"""What ranks exchange: flags on the host, gradients, and sums of statistics by one reduction."""

import contextlib
import multiprocessing
import os
from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch
from fairseq.distributed import utils as distributed_utils

from fairseq_xl.engine import launch
from fairseq_xl.errors import UserError
from fairseq_xl.io import ranks
from fairseq_xl.modules import data_parallel
from tests.waits import Waits


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
    ranks.host_group.cache_clear()


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
        assert ranks.any_rank([True, False, True]) == [True, False, True]
        assert ranks.any_rank([False]) == [False]
    assert not waits.found
    assert groups == GROUPS


class TwoHeads(torch.nn.Module):
    """`heads[number]` of an input, or of a frozen layer before it."""

    def __init__(self):
        super().__init__()
        self.frozen = torch.nn.Linear(2, 2).requires_grad_(False)
        self.heads = torch.nn.ModuleList([torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)])

    def forward(self, inputs, number):
        return {"loss": self.heads[number](self.frozen(inputs)).sum(), "size": len(inputs), "more": [inputs]}


def options(**more):
    """The options of the section distributed_training that `wrap` reads."""
    names = dict(ddp_backend="pytorch_ddp", broadcast_buffers=False, bucket_cap_mb=25, gradient_as_bucket_view=False)
    return SimpleNamespace(**names | dict(ddp_comm_hook="none", heartbeat_timeout=-1, device_id=0) | more)


@pytest.mark.parametrize("as_views", [False, True])
def test_pytorch_ddp_leaves_unused_gradients_none_without_looking_for_them(as_views, alone):
    """With find_unused_parameters torch's reducer would wait for the device, where no test sees it."""
    torch.manual_seed(0)
    module, alike = TwoHeads(), TwoHeads()
    alike.load_state_dict(module.state_dict())
    model = data_parallel.wrap(module, options(gradient_as_bucket_view=as_views), torch.device("cpu"))
    inputs = torch.ones(3, 2)
    assert not model.module.find_unused_parameters
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
        assert ranks.any_rank([True, False]) == [True, False]
        end_alone()
        begin_alone()
    assert groups == GROUPS * 2


def _connect_as(rank, folder, failing, writer):
    """Joins two ranks, which take themselves for ones on GPUs; those of `failing` have a wrong network interface."""

    def init(cfg):
        torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", world_size=2, rank=rank)
        distributed_utils.get_global_group()  # NCCL's, on GPUs
        if rank in failing:
            os.environ["GLOO_SOCKET_IFNAME"] = "absent7"
        return rank

    distributed_utils.distributed_init, cfg = init, SimpleNamespace(distributed_training=SimpleNamespace())
    try:
        launch.join(cfg)
        writer.send(cfg.distributed_training.distributed_rank)
    except UserError as error:
        writer.send(str(error))


@pytest.mark.parametrize("failing", [(), (1,), (0, 1)])
def test_gloo_connects_before_training_or_every_rank_says_why(failing, tmp_path, monkeypatch):
    """Where one of two ranks fails, the other one does not wait for long."""
    monkeypatch.setattr(ranks, "SECONDS_TO_CONNECT", 1)
    monkeypatch.setattr(torch.distributed, "get_backend", lambda group: "nccl")
    context, readers, processes = multiprocessing.get_context("fork"), [], []
    for rank in range(2):
        reader, writer = context.Pipe(duplex=False)
        processes.append(context.Process(target=_connect_as, args=(rank, tmp_path, failing, writer)))
        processes[-1].start()
        readers.append(reader)
    try:
        assert all(reader.poll(60) for reader in readers)
        found = [reader.recv() for reader in readers]
    finally:
        for process in processes:
            process.kill()
            process.join()
    advice = "set GLOO_SOCKET_IFNAME to the network interface"
    for rank, answer in enumerate(found):
        if not failing:
            assert answer == rank
            continue
        reason = "ifa != nullptr. Unable to find address for: absent7" if rank in failing else "Wait timeout"
        assert answer.startswith(f"the processes cannot reach each other through gloo ({reason}): {advice}")


@pytest.fixture
def reductions(monkeypatch):
    """Doubles what is reduced, as if another rank had the same; the list has the number of elements of each call."""
    sizes = []

    def doubled(tensor, group):
        sizes.append(tensor.numel())
        tensor.mul_(2)

    monkeypatch.setattr(distributed_utils, "all_reduce", doubled)
    monkeypatch.setattr(distributed_utils, "get_data_parallel_group", lambda: None)
    return sizes


def statistics(device):
    """Numbers of the host between tensors of a device."""
    sums = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device=device)
    return {"size": 3, "sums": sums, "time": torch.tensor(0.5), "loss": torch.tensor(1.5, device=device), "ooms": 0}


def test_statistics_of_all_ranks_are_summed_by_one_reduction(reductions):
    found = ranks.sum_over_ranks(statistics("cpu"), torch.device("cpu"))
    assert {name: value.tolist() for name, value in found.items()} == {
        "size": 6,
        "sums": [[2, 4, 6], [8, 10, 12]],
        "time": 1,
        "loss": 3,
        "ooms": 0,
    }
    assert list(found) == list(statistics("cpu")) and {value.dtype for value in found.values()} == {torch.double}
    assert reductions == [10]


def test_statistics_of_host_and_device_are_summed_without_a_sync(reductions):
    with Waits() as waits:
        found = ranks.sum_over_ranks(statistics("meta"), torch.device("meta"))
    # numbers of the host are copied to the device, for which the host does not wait
    assert reductions == [10] and not [name for name in waits.found if "non_blocking=True" not in name]
    assert {name: (value.device.type, value.shape) for name, value in found.items()} == {
        name: ("meta", torch.as_tensor(value).shape) for name, value in statistics("cpu").items()
    }


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_statistics_are_summed_on_a_gpu_without_a_sync(reductions):
    on_gpu = statistics("cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = ranks.sum_over_ranks(on_gpu, torch.device("cuda"))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert (found["size"].item(), found["time"].item(), found["sums"].sum().item()) == (6, 1, 42)
