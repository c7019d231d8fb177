"""Communication between ranks: plain data, which runs no code, flags on the host, and sums of statistics."""

import functools
import io
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from fairseq import utils
from fairseq.distributed import utils as distributed_utils
from torch import Tensor

from fairseq_xl.io.checkpoints import plain_types

#: how long a rank waits for the others to connect through gloo, once all ranks are in the process group
SECONDS_TO_CONNECT = 60


def broadcast(data: Any, source: int, group: Any, device: torch.device | None = None) -> Any:
    """Sends data of the rank `source` to all ranks of a group."""
    with torch.serialization.safe_globals([*plain_types(), distributed_utils._TensorPlaceholder]):
        return distributed_utils.broadcast_object(data, src_rank=source, group=group, dist_device=device)


def all_gather_list(data: Any, group: Any = None, max_size: int | None = None) -> list[Any]:
    """Gathers data of all ranks in order, tensors on the CPU, for fairseq's function, which sends pickles."""
    if group is None:
        group = distributed_utils.get_global_group()
    message = io.BytesIO()
    torch.save(utils.move_to_cpu(data), message)
    device = "cuda" if torch.distributed.get_backend(group) == "nccl" else "cpu"
    content = torch.frombuffer(message.getbuffer(), dtype=torch.uint8).to(device)
    sizes = torch.cat(distributed_utils.all_gather(torch.tensor([len(content)], device=device), group)).tolist()
    padded = content.new_zeros(max(sizes))
    padded[: len(content)] = content
    messages = distributed_utils.all_gather(padded, group)
    with torch.serialization.safe_globals([*plain_types(), utils.CudaEnvironment]):
        return [
            torch.load(io.BytesIO(gathered[:size].cpu().numpy().tobytes()), weights_only=True)
            for gathered, size in zip(messages, sizes)
        ]


def any_rank(flags: list[bool]) -> list[bool]:
    """Whether each flag is true on any rank, for all ranks at once; on the host, so that none waits for its device."""
    if distributed_utils.get_data_parallel_world_size() == 1:
        return flags
    reduced = np.array(flags, dtype=np.uint8)
    group = host_group(torch.distributed.group.WORLD)
    torch.distributed.all_reduce(torch.from_numpy(reduced), torch.distributed.ReduceOp.MAX, group)
    return reduced.astype(bool).tolist()


@functools.lru_cache(maxsize=1)
def host_group(world: torch.distributed.ProcessGroup) -> torch.distributed.ProcessGroup:
    """The group of all ranks that reduces tensors on the host; it is made once for `world`, torch's process group."""
    group = distributed_utils.get_data_parallel_group()
    if torch.distributed.get_backend(group) == "gloo":
        return group
    # A collective waits for the slowest rank, for example while another rank saves a checkpoint. So the group keeps
    # torch's long timeout, and one with a short timeout, which is used once, finds ranks that cannot be reached.
    brief = torch.distributed.new_group(backend="gloo", timeout=timedelta(seconds=SECONDS_TO_CONNECT))
    torch.distributed.all_reduce(torch.zeros(1), group=brief)
    torch.distributed.destroy_process_group(brief)
    return torch.distributed.new_group(backend="gloo")


def sum_over_ranks(data: Mapping[str, Any], device: torch.device) -> dict[str, Tensor]:
    """Sums numbers and tensors {name: value} over ranks by one all-reduce, in float64; nothing waits for the device."""
    values = {name: torch.as_tensor(value, dtype=torch.double) for name, value in data.items()}
    flat = {name: value.reshape(-1) for name, value in values.items()}
    sizes = {name: value.numel() for name, value in values.items()}
    on_host = [name for name, value in values.items() if value.device.type != device.type]
    if on_host:
        copied = torch.cat([flat[name] for name in on_host])
        if device.type == "cuda":
            copied = copied.pin_memory()  # a GPU copies it while the host goes on
        copied = copied.to(device, non_blocking=True)
        flat |= zip(on_host, copied.split([sizes[name] for name in on_host]), strict=True)
    sums = torch.cat(list(flat.values()))  # in the order of `data`, which does not depend on where the values are
    distributed_utils.all_reduce(sums, group=distributed_utils.get_data_parallel_group())
    parts = sums.split(list(sizes.values()))
    return {name: part.view(values[name].shape) for name, part in zip(values, parts, strict=True)}
