"""What other ranks send, and names of files, run no code."""

import contextlib
import os
import pickle

import pytest
import torch
from fairseq.data import indexed_dataset
from fairseq.distributed import utils as distributed_utils
from fairseq.utils import CudaEnvironment
from omegaconf import OmegaConf

import fairseq_xl
from fairseq_xl.errors import UserError
from fairseq_xl.io.ranks import broadcast


class Evil:
    def __reduce__(self):
        return exec, ("raise SystemError('code ran')",)


def _gather(rank, folder):
    fairseq_xl.register()
    torch.distributed.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
    gathered = distributed_utils.all_gather_list([{"loss": torch.tensor(rank + 0.5), "words": "x" * 50_000 * rank}])
    assert [outputs[0]["loss"].item() for outputs in gathered] == [0.5, 1.5]
    assert [len(outputs[0]["words"]) for outputs in gathered] == [0, 50_000]
    gpu = object.__new__(CudaEnvironment)
    gpu.name = "H100"
    assert [found.name for found in distributed_utils.all_gather_list(gpu)] == ["H100"] * 2
    with pytest.raises(pickle.UnpicklingError):
        distributed_utils.all_gather_list(Evil() if rank else None)
    group, state = torch.distributed.group.WORLD, {"cfg": OmegaConf.create({"a": [1, None]}), "model": torch.ones(2)}
    received = broadcast(None if rank else state, 0, group, torch.device("cpu"))
    assert received["cfg"] == state["cfg"] and torch.equal(received["model"], state["model"])
    torch.distributed.destroy_process_group()


def test_ranks_gather_plain_data_only(tmp_path):
    torch.multiprocessing.start_processes(_gather, (str(tmp_path),), nprocs=2, start_method="fork")


def _consolidate(rank, folder):
    from fairseq_xl.optimizers._sharded import ShardedOptimizer

    torch.distributed.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
    group = torch.distributed.group.WORLD
    weights = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    optimizer = ShardedOptimizer([{"params": weights}], torch.optim.SGD, process_group=group, lr=0.1)
    if rank == 0:
        with pytest.raises(pickle.UnpicklingError):
            optimizer.consolidate_state_dict()
        os._exit(0)  # the other rank may wait for it
    optimizer.optim.state_dict = Evil
    with contextlib.suppress(RuntimeError):
        optimizer.consolidate_state_dict()
    os._exit(0)


def test_ranks_of_a_sharded_optimizer_send_plain_data_only(tmp_path):
    fairseq_xl.register()
    torch.multiprocessing.start_processes(_consolidate, (str(tmp_path),), nprocs=2, start_method="fork")


def test_fasta_files_are_refused(tmp_path):
    fairseq_xl.register()
    path = tmp_path / "x $(exit 1)"
    path.with_suffix(".fasta").write_text(">a\nACGT\n")
    with pytest.raises(UserError, match=r"\.fasta"):
        indexed_dataset.make_dataset(str(path), "fasta")
