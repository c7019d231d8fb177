"""An update does not wait for the device; gradients that are not finite skip it there and are reported later.

A machine without a GPU runs the same operations: those that read a value of a tensor would wait for a GPU.
"""

import contextlib
import traceback
from types import SimpleNamespace

import pytest
import torch
from fairseq import trainer as fairseq_trainer, utils
from fairseq.optim import fp16_optimizer
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_xl.errors import UserError
from fairseq_xl.patches import norms
from tests.commands import equal_parameters, load, pretraining, run_train

#: operations that give the host a value, or a shape that depends on values
READING = {"_local_scalar_dense", "equal", "is_nonzero", "item", "masked_select", "nonzero", "_unique2", "unique_dim"}
READING |= {"bincount", "nonzero_numpy", "unique_consecutive"}
METHODS = {"__bool__", "__float__", "__index__", "__int__", "item", "tolist"}


def place():
    """The line of this repository or of fairseq that runs."""
    frames = [frame for frame in traceback.extract_stack() if "torch/" not in frame.filename]
    frames = [frame for frame in frames if not frame.filename.endswith(("test_norms.py", "_ops.py"))]
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


@pytest.mark.parametrize(
    "wait",
    [
        lambda x: float(x.sum()),
        lambda x: x.sum().item(),
        lambda x: x.tolist(),
        lambda x: bool(x.sum() > 0),
        lambda x: x[x > 0],
        lambda x: x.nonzero(),
        lambda x: torch.equal(x, x),
        lambda x: x.unique(),
        lambda x: torch.where(x > 0),
    ],
)
def test_what_waits_for_a_sync_is_noticed(wait):
    with Waits() as waits:
        wait(torch.ones(3))
    assert waits.found


@pytest.fixture
def waits(monkeypatch):
    """What waits in the updates of a run; `reduce_metrics` and what `one_run` of the tests reads are left out."""
    waits = SimpleNamespace(updates=[])
    step = fairseq_trainer.Trainer.train_step

    def watched(self, samples, raise_oom=False):
        with Waits() as found:
            output = step(self, samples, raise_oom)
        waits.updates.append(found.found)
        return output

    monkeypatch.setattr(fairseq_trainer.Trainer, "train_step", watched)
    return waits
