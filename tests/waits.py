"""Finds what would make the host wait for a GPU, on a machine without one.

Such a machine runs the same operations, on CPU or on the meta device. Some of them read a value of a tensor, make a
shape of values, or copy a tensor to the host: on a GPU the host waits there. Copies to the device of another tensor,
and those by `copy_`, are found on the meta device only: on CPU they look like those on a GPU.
"""

import contextlib
import linecache
import sys
import traceback

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

#: operators that give the host a value, or a shape that depends on values
READING = {"_local_scalar_dense", "equal", "is_nonzero", "item", "masked_select", "nonzero", "nonzero_numpy"}
READING |= {"_unique", "_unique2", "unique_consecutive", "unique_dim", "allclose", "bincount", "_is_all_true"}
READING |= {"_is_any_true"}
#: methods that read values or copy them to the host; some run no operator on CPU
METHODS = {"__array__", "__bool__", "__float__", "__index__", "__int__", "cpu", "item", "numpy", "tolist"}


def running_line():
    """The line of this repository or of fairseq that runs."""
    for frame, number in traceback.walk_stack(sys._getframe()):
        file = frame.f_code.co_filename
        if "torch/" not in file and file != __file__ and not file.endswith("_ops.py"):
            return f"{file}:{number} {linecache.getline(file, number).strip()}"
    return "the backward pass"  # which has a thread of its own on a GPU


def operator_waits(function, args, result):
    """Whether an operator would wait for a GPU."""
    name = function.overloadpacket.__name__
    if name in READING or str(function) == "aten.repeat_interleave.Tensor":
        return True
    if name in ("index", "index_put", "index_put_"):  # an index of booleans is one of the indices of True
        return any(isinstance(each, torch.Tensor) and each.dtype == torch.bool for each in args[1])
    if name in ("_to_copy", "copy_"):
        return any(isinstance(each, torch.Tensor) and each.device != result.device for each in args)
    return False


def method_waits(function, args, kwargs):
    """Whether a method of a tensor would wait for a GPU on which the tensor is."""
    name = getattr(function, "__name__", "")
    if name == "__setitem__":  # assigning a number to one element copies it from the host
        return isinstance(args[2], (int, float)) and args[0][args[1]].dim() == 0
    if name == "to" and not kwargs.get("non_blocking"):
        return "cpu" in [each for each in (*args[1:], *kwargs.values()) if isinstance(each, str)]
    return name in METHODS


class Waits(contextlib.ExitStack):
    """Context that collects what would wait for a GPU.

    Attributes:
        found: {"name of the operator or method at file:line": times}
        operators: names of all operators that ran, in order
    """

    def __init__(self):
        super().__init__()
        self.found, self.operators = {}, []

    def add(self, name):
        where = f"{name} at {running_line()}"
        self.found[where] = self.found.get(where, 0) + 1

    def __enter__(self):
        waits = self

        class Dispatched(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                result = function(*args, **kwargs or {})
                waits.operators.append(function.__name__)
                if operator_waits(function, args, result):
                    waits.add(function.overloadpacket.__name__)
                return result

        class Called(TorchFunctionMode):
            def __torch_function__(self, function, types, args=(), kwargs=None):
                if method_waits(function, args, kwargs or {}):
                    waits.add(function.__name__)
                return function(*args, **kwargs or {})

        self.enter_context(Dispatched())
        self.enter_context(Called())
        return super().__enter__()


@contextlib.contextmanager
def no_waits():
    """Context that fails if something in it would wait for a GPU; yields its `Waits`."""
    with Waits() as waits:
        yield waits
    assert not waits.found, waits.found
