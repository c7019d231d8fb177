"""The check for what waits for a GPU notices each way to wait, on CPU and on the meta device."""

import numpy as np
import pytest
import torch

from tests.waits import Waits, no_waits

ONES = torch.ones(3)
WAITING = {
    "float": lambda x: float(x.sum()),
    "int": lambda x: int(x.sum()),
    "index": lambda x: [0, 1][x[0].long()],
    "if": lambda x: bool(x.sum() > 0),
    "item": lambda x: x.sum().item(),
    "tolist": lambda x: x.tolist(),
    "cpu": lambda x: x.cpu(),
    "to": lambda x: x.to("cpu"),
    "to named device": lambda x: x.to(device="cpu"),
    "to device and type": lambda x: x.to("cpu", torch.float64),
    "numpy": lambda x: x.numpy(),
    "array": lambda x: np.asarray(x),
    "mask": lambda x: x[x > 0],
    "assignment under a mask": lambda x: x.clone().index_put_((x > 0,), x.new_zeros(())),
    "assignment of a number": lambda x: x.clone().__setitem__(1, 2),
    "masked_select": lambda x: x.masked_select(x > 0),
    "nonzero": lambda x: x.nonzero(),
    "where": lambda x: torch.where(x > 0),
    "equal": lambda x: torch.equal(x, x),
    "allclose": lambda x: torch.allclose(x, x),
    "unique": lambda x: x.unique(),
    "unique_consecutive": lambda x: x.unique_consecutive(),
    "bincount": lambda x: x.long().bincount(),
    "repeat_interleave": lambda x: x.repeat_interleave(x.long()),
}


@pytest.mark.parametrize("name", WAITING)
def test_a_sync_is_noticed(name):
    with Waits() as waits:
        WAITING[name](ONES)
    assert waits.found and all("test_waits.py" in where for where in waits.found)
    with pytest.raises(AssertionError, match="test_waits.py"), no_waits():
        WAITING[name](ONES)


def test_a_sync_of_a_copy_between_devices_is_noticed_on_meta():
    """torch refuses a copy to the host there."""
    with pytest.raises(NotImplementedError), no_waits():
        torch.ones(3).copy_(ONES.to("meta"))
    with Waits() as waits:
        ONES.to("meta")
        torch.empty(3, device="meta").copy_(ONES)
    assert len(waits.found) == 2


def test_what_waits_for_nothing_is_no_sync():
    indices = torch.tensor([2, 0])
    with no_waits():
        ONES.index_select(0, indices).masked_fill(indices > 0, 2).to(torch.float64).double().sum()
        ONES[indices].to(ONES.device)
        ONES[indices].to("cpu", non_blocking=True)
        ONES.repeat_interleave(2)
        ONES.copy_(torch.ones(3))
        changed = ONES.clone()
        changed[:2], changed[2] = 5, ONES[0]
        changed[2].fill_(6)
