"""Finds what would make the host wait for a GPU.

A machine without a GPU runs the same operations: those that read a value of a tensor, or make a shape of values.
"""

import contextlib
import traceback

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

#: operations that give the host a value, or a shape that depends on values
READING = {"_local_scalar_dense", "equal", "is_nonzero", "item", "masked_select", "nonzero", "_unique2", "unique_dim"}
READING |= {"bincount", "nonzero_numpy", "unique_consecutive"}
METHODS = {"__bool__", "__float__", "__index__", "__int__", "item", "tolist"}


def place():
    """The line of this repository or of fairseq that runs."""
    frames = [frame for frame in traceback.extract_stack() if "torch/" not in frame.filename]
    frames = [frame for frame in frames if not frame.filename.endswith(("waits.py", "_ops.py"))]
    return f"{frames[-1].filename}:{frames[-1].lineno} {frames[-1].line}"


class Waits(contextlib.ExitStack):
    """Collects in `found` what would wait for a GPU: {"name of the operation at file:line": times}."""

    def __init__(self):
        super().__init__()
        self.found = {}

    def add(self, name):
        where = f"{name} at {place()}"
        self.found[where] = self.found.get(where, 0) + 1

    def __enter__(self):
        waits = self

        class Dispatched(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                name = function.overloadpacket.__name__
                indices = args[1] if name in ("index", "index_put", "index_put_") else ()
                masks = any(isinstance(each, torch.Tensor) and each.dtype == torch.bool for each in indices)
                if name in READING or masks:
                    waits.add(name)
                return function(*args, **kwargs or {})

        class Called(TorchFunctionMode):
            def __torch_function__(self, function, types, args=(), kwargs=None):
                if getattr(function, "__name__", "") in METHODS:
                    waits.add(function.__name__)
                return function(*args, **kwargs or {})

        self.enter_context(Dispatched())
        self.enter_context(Called())
        return super().__enter__()
