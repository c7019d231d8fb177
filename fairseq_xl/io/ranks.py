"""Plain data and tensors that ranks send each other; no rank runs anything in them."""

import io
from typing import Any

import torch
from fairseq import utils
from fairseq.distributed import utils as distributed_utils

from fairseq_xl.io.checkpoints import plain_types


def broadcast(data: Any, source: int, group: Any, device: torch.device | None = None) -> Any:
    """Sends data of the rank `source` to all ranks of a group."""
    with torch.serialization.safe_globals([*plain_types(), distributed_utils._TensorPlaceholder]):
        return distributed_utils.broadcast_object(data, src_rank=source, group=group, dist_device=device)


def all_gather_list(data: Any, group: Any = None, max_size: int | None = None) -> list[Any]:
    """Gathers data of all ranks, in the order of ranks; tensors come back on the CPU.

    It replaces fairseq's function, which sends pickles. `max_size` has no effect.
    """
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
