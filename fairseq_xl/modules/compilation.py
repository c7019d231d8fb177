"""torch.compile for the layers of a model."""

import functools
import logging
from collections.abc import Callable
from typing import Any

import torch

from fairseq_xl.errors import UserError

logger = logging.getLogger(__name__)

#: graphs of one function at most: of encoder and decoder, packed or not, and of inputs with a size of 1
GRAPHS = 64


@functools.cache
def compiled(function: Callable[..., Any], backend: str) -> Callable[..., Any]:
    """The function compiled as one graph, for the sizes that `mark_sizes` names; its first calls compile it."""
    logger.info("compiling the layers for the first batches (%s): this can take minutes", backend)
    config = torch._dynamo.config
    limit = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"  # its name until torch 2.6
    with_limit = config.patch({limit: GRAPHS})  # torch's is 8; it holds during each call
    return with_limit(torch.compile(function, backend=backend, fullgraph=True))


def mark_sizes(*inputs: Any) -> None:
    """Tells torch.compile which sizes of hidden states and of other inputs of layers change from batch to batch.

    All sizes but the last one of floating-point tensors, the channels; those of tensors in tuples and attributes too.
    """
    for each in inputs:
        if isinstance(each, torch.Tensor):
            sizes = each.dim() - 1 if each.is_floating_point() else each.dim()
            torch._dynamo.maybe_mark_dynamic(each, list(range(sizes)))
        elif isinstance(each, tuple):
            mark_sizes(*each)
        elif hasattr(each, "__dict__"):
            mark_sizes(*vars(each).values())


def check_compiler(backend: str, on_gpu: bool) -> None:
    """Raises `UserError` for an unknown backend, and if the compiler that the backend `inductor` runs is missing."""
    known = [*torch.compiler.list_backends(exclude_tags=()), "inductor"]
    if backend not in known:
        raise UserError(f"--compile-backend {backend}: choose one of {', '.join(sorted(set(known)))}")
    if backend != "inductor":
        return
    from torch._inductor import cpp_builder, exc

    try:
        cpp_builder.get_cpp_compiler()
    except exc.InvalidCxxCompiler:
        raise UserError(
            "--compile needs a C++ compiler, and none was found: install g++ (or set CXX), or leave out --compile"
        ) from None
    if on_gpu and not torch.utils._triton.has_triton():
        raise UserError("--compile needs triton on a GPU, and it was not found: install it, or leave out --compile")
