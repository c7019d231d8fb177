"""torch.compile for the layers of a model."""

import functools
import logging
from collections.abc import Callable
from typing import Any

import torch

from fairseq_xl.errors import UserError

logger = logging.getLogger(__name__)

#: maximum number of graphs of one function: of encoder and decoder, packed or not, and of inputs with a size of 1
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
    """Marks sizes that change from batch to batch: all but channels, the last of floating-point tensors."""
    for value in inputs:
        if isinstance(value, torch.Tensor):
            sizes = value.dim() - 1 if value.is_floating_point() else value.dim()
            torch._dynamo.maybe_mark_dynamic(value, list(range(sizes)))
        elif isinstance(value, tuple):
            mark_sizes(*value)
        elif hasattr(value, "__dict__"):
            mark_sizes(*vars(value).values())


def check_compiler(backend: str, on_gpu: bool) -> None:
    """Raises `UserError` for an unknown backend, and if the compiler that the backend `inductor` runs is missing."""
    backends = [*torch.compiler.list_backends(exclude_tags=()), "inductor"]
    if backend not in backends:
        raise UserError(f"--compile-backend {backend}: choose one of {', '.join(sorted(set(backends)))}")
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
