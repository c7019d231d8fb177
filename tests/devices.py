"""The devices that tests run on: the CPU, and a GPU where there is one."""

import contextlib

import pytest
import torch

from tests.waits import no_waits

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA here")
#: parameters of tests whose body is the same on both
DEVICES = ["cpu", pytest.param("cuda", marks=needs_cuda)]


def moved(value, device):
    """A tensor, or dicts and lists of them, on a device; other values stay."""
    if isinstance(value, dict):
        return {key: moved(each, device) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(moved(each, device) for each in value)
    return value.to(device) if isinstance(value, torch.Tensor) else value


@contextlib.contextmanager
def no_sync(device):
    """Context that fails if the host waits for the GPU in it: torch says so on CUDA, elsewhere `tests.waits`."""
    if device != "cuda":
        with no_waits():
            yield
        return
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def relative_error(found, expected):
    """Norm of the difference over the norm of what is expected, in float64 on the host."""
    found, expected = found.detach().double().cpu(), expected.detach().double().cpu()
    return ((found - expected).norm() / expected.norm()).item()
