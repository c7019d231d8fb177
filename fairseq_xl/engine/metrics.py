"""Sums of statistics that stay on their device until they are read."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from fairseq.logging import meters, metrics
from torch import Tensor

#: a function from {name: its R sums} to {name in the log: value}
Values = Callable[[dict[str, tuple[float, ...]]], dict[str, float]]


class DeviceSums(meters.Meter):
    """Sums of N names with R numbers each, such as a sum and a count.

    An update adds a tensor (R, N) on its device. Reading copies all of it to the host, once per update.
    """

    def __init__(self) -> None:
        super().__init__()
        self.values: Values | None = None
        self.names: Sequence[str] = ()
        self.logged: dict[str, None] = {}
        self.reset()

    def reset(self) -> None:
        """Sets all sums to 0."""
        self.sums: Tensor | None = None
        self.restored: dict[str, tuple[float, ...]] = {}  # of a checkpoint, whose run may have had other names
        self.found: dict[str, tuple[float, ...]] | None = None

    def update(self, sums: Tensor, names: Sequence[str], values: Values | None = None) -> None:
        """Adds sums (R, N); `values`: what `get_smoothed_values` logs, a function of what `read` returns."""
        self.sums = sums if self.sums is None else self.sums + sums
        self.names, self.values, self.found = names, values, None

    def read(self) -> dict[str, tuple[float, ...]]:
        """{name: its R sums}, without names whose sums are all 0."""
        if self.found is None:
            self.found = dict(self.restored)
            columns = [] if self.sums is None else zip(self.names, self.sums.t().tolist(), strict=True)
            for name, column in columns:
                if any(column):
                    before = self.found.get(name, (0.0,) * len(column))
                    self.found[name] = tuple(old + new for old, new in zip(before, column, strict=True))
        return self.found

    def named_values(self) -> dict[str, float | None]:
        """{name in the log: value}; None for a name that had a value before the sums were reset."""
        values = self.values(self.read()) if self.values else {}
        self.logged |= dict.fromkeys(values)
        return self.logged | values

    @property
    def smoothed_value(self) -> list:
        """Nothing: `named_values` are logged."""
        return []

    def state_dict(self) -> dict[str, Any]:
        """Names and their sums, a tensor (names, R)."""
        found = self.read()
        return {"names": list(found), "sums": torch.tensor(list(found.values()), dtype=torch.double)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores what `state_dict` returned."""
        self.reset()
        self.restored = dict(zip(state_dict["names"], map(tuple, state_dict["sums"].tolist()), strict=True))


def log_sums(key: str, sums: Tensor, names: Sequence[str], values: Values | None = None, replaces: str = "") -> None:
    """Adds sums to a `DeviceSums` meter of every active aggregator.

    Args:
        key: name of the meter; fairseq logs no name that begins with ``_``.
        sums: (R, N) float64, added up over ranks and micro-steps.
        names: N names; the same object in each call.
        values: the values that are logged under names of their own.
        replaces: pattern of the names of fairseq's meters that checkpoints of earlier versions hold instead. These
            meters are removed, since fairseq would keep logging them.
    """
    for aggregator in metrics.get_active_aggregators():
        if key not in aggregator:
            _remove_averages(aggregator, replaces)
            aggregator.add_meter(key, DeviceSums(), priority=10)
        aggregator[key].update(sums, names, values)


def _remove_averages(aggregator: meters.MetersDict, pattern: str) -> None:
    kinds = (meters.AverageMeter, meters.SumMeter)
    old = [key for key, meter in aggregator.items() if isinstance(meter, kinds) and re.fullmatch(pattern, key)]
    for key in old:
        del aggregator[key]
    aggregator.priorities[:] = [entry for entry in aggregator.priorities if entry[2] in aggregator]
