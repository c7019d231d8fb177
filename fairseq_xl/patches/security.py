"""Patches of fairseq where a message of another rank or the name of a file could run code."""

import io
from typing import Any

import torch
from fairseq import utils
from fairseq.data.fasta_dataset import FastaDataset
from fairseq.distributed import utils as distributed_utils

from fairseq_xl.errors import UserError


def install() -> None:
    """Replaces fairseq's pickles between ranks, and refuses FASTA files, whose names fairseq passes to a shell."""
    torch.serialization.add_safe_globals([utils.CudaEnvironment])
    distributed_utils.all_gather_list = all_gather_list
    FastaDataset._build_index = _refuse_fasta


def all_gather_list(data: Any, group: Any = None, max_size: int | None = None) -> list[Any]:
    """Gathers plain data and tensors of all ranks, in the order of ranks; tensors come back on the CPU.

    Args:
        data: what `torch.load(weights_only=True)` reads.
        group: group of the collective; None: all ranks.
        max_size: has no effect; fairseq reserves as many bytes for each rank.
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
    return [
        torch.load(io.BytesIO(gathered[:size].cpu().numpy().tobytes()), weights_only=True)
        for gathered, size in zip(messages, sizes)
    ]


def _refuse_fasta(dataset: FastaDataset, path: str) -> None:
    raise UserError(f"{path}.fasta: FASTA files are not read, since fairseq passes their names to a shell")
