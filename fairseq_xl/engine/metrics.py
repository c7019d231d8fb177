"""Statistics of a training: means, rates and sums, on their device until they are read."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fairseq_xl.errors import UserError

INTERVAL, EPOCH = "train_inner", "train"  # the periods of a training, with fairseq's names
#: a function from {name: its R sums} to {name in the log: value}
Values = Callable[[dict[str, tuple[float, ...]]], dict[str, float]]
#: a function from {name: meter} to {name in the log: value}
Derived = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class Mean:
    """A weighted mean; without weight, the latest value."""

    def __init__(self, digits: int | None = None):
        self.digits = digits
        self.reset()

    def reset(self) -> None:
        self.latest: Any = None
        self.sum: Any = 0
        self.count: Any = 0

    def add(self, value: Any, weight: Any = 1) -> None:
        """Adds a value, unless its weight is 0; a weight that is a tensor is not read."""
        if value is None:
            return
        self.latest = value
        if isinstance(weight, Tensor):
            total = torch.where(weight > 0, value * weight, 0)
        elif weight > 0:
            total = value * weight
        else:
            return
        self.sum, self.count = _plus(self.sum, total), _plus(self.count, weight)

    @property
    def avg(self) -> Any:
        return self.sum / self.count if self.count > 0 else self.latest

    def values(self, name: str) -> dict[str, Any]:
        """{name in the log: the rounded mean}; nothing for a name that begins with ``_``."""
        if name.startswith("_"):
            return {}
        value = self.avg
        if isinstance(value, Tensor) and value.numel() == 1:
            value = value.item()
        return {name: value if value is None or self.digits is None else round(value, self.digits)}

    def state_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        vars(self).update({name: state[name] for name in vars(self)})


class Rate(Mean):
    """An amount per second since the last record."""

    def reset(self) -> None:
        """Counts and measures time from here on."""
        super().reset()
        self.start = time.perf_counter()

    @property
    def avg(self) -> Any:
        return self.sum / (time.perf_counter() - self.start)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"start": self.start - time.perf_counter()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a state, without the time between the runs."""
        super().load_state_dict(state)
        self.start += time.perf_counter()


class Sums:
    """Sums of N names with R numbers each, such as a sum and a count.

    An update adds a tensor (R, N) on its device. Reading copies the sums to the host, once per update.
    """

    def __init__(self) -> None:
        self.function: Values | None = None
        self.names: Sequence[str] = ()
        self.logged: dict[str, None] = {}
        self.reset()

    def reset(self) -> None:
        self.sums: Tensor | None = None
        self.restored: dict[str, tuple[float, ...]] = {}  # of a checkpoint, whose run may have had other names
        self._by_name: dict[str, tuple[float, ...]] | None = None

    def add(self, sums: Tensor, names: Sequence[str], function: Values | None = None) -> None:
        """Adds sums (R, N); `function` makes the values in the log from what `read` returns."""
        self.sums = sums if self.sums is None else self.sums + sums
        self.names, self.function, self._by_name = names, function, None

    def read(self) -> dict[str, tuple[float, ...]]:
        """{name: its R sums}, without names whose sums are all 0."""
        if self._by_name is None:
            self._by_name = dict(self.restored)
            columns = [] if self.sums is None else zip(self.names, self.sums.t().tolist(), strict=True)
            for name, column in columns:
                if any(column):
                    previous = self._by_name.get(name, (0.0,) * len(column))
                    self._by_name[name] = tuple(old + new for old, new in zip(previous, column, strict=True))
        return self._by_name

    def values(self, name: str) -> dict[str, float | None]:
        """{name in the log: value}; None for a name that had a value before the sums were reset."""
        values = self.function(self.read()) if self.function else {}
        self.logged |= dict.fromkeys(values)
        return self.logged | values

    def state_dict(self) -> dict[str, Any]:
        """Names and their sums, a tensor (names, R)."""
        by_name = self.read()
        return {"names": list(by_name), "sums": torch.tensor(list(by_name.values()), dtype=torch.double)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.reset()
        self.restored = dict(zip(state["names"], map(tuple, state["sums"].tolist()), strict=True))


KINDS: dict[str, Callable[[], Any]] = {"Mean": Mean, "Rate": Rate, "Sums": Sums}


class Metrics:
    """Statistics that are averaged over periods, such as the updates of an interval and those of an epoch."""

    def __init__(self, *periods: str):
        self.periods: dict[str, dict[str, Any]] = {period: {} for period in periods or ("",)}
        self.functions: dict[str, Derived] = {}

    def average(self, name: str, value: Any, weight: Any = 1, digits: int | None = None) -> None:
        """Adds a value to a mean; a name that begins with ``_`` is not logged."""
        for meters in self.periods.values():
            meters.setdefault(name, Mean(digits)).add(value, weight)

    def latest(self, name: str, value: Any, digits: int | None = None) -> None:
        """Sets a value that is not averaged."""
        self.average(name, value, 0, digits)

    def rate(self, name: str, amount: Any, digits: int | None = None) -> None:
        """Adds an amount, which is logged per second; the first call only starts the clock."""
        for meters in self.periods.values():
            if name in meters:
                meters[name].add(amount)
            else:
                meters[name] = Rate(digits)

    def sums(self, name: str, sums: Tensor, names: Sequence[str], function: Values | None = None) -> None:
        """Adds sums (R, N) float64 over ranks and micro-steps to a meter of N names, the same in each call."""
        for meters in self.periods.values():
            if name not in meters:
                meters[name] = Sums()
            meters[name].add(sums, names, function)

    def derived(self, key: str, function: Derived) -> None:
        """Logs the results of a function, called when values are read; it replaces a function with the same key."""
        self.functions[key] = function

    def values(self, period: str = "") -> dict[str, Any]:
        """{name in the log: value} since the last reset; None where there is no value."""
        meters = self.periods[period]
        values: dict[str, Any] = {}
        for name, meter in meters.items():
            values |= meter.values(name)
        for function in self.functions.values():
            values |= function(meters)
        return values

    def read(self, name: str, period: str = "") -> dict[str, tuple[float, ...]]:
        """The sums of `sums` since the last reset: {name: its R sums}."""
        meter = self.periods[period].get(name)
        return {} if meter is None else dict(meter.read())

    def reset(self, period: str) -> None:
        for meter in self.periods[period].values():
            meter.reset()

    def state_dict(self) -> dict[str, Any]:
        """{period: {name: (kind of the meter, its state)}}, without derived values."""
        return {
            period: {name: (type(meter).__name__, meter.state_dict()) for name, meter in meters.items()}
            for period, meters in self.periods.items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a state; raises `UserError` if it is damaged."""
        try:
            for period, meters in self.periods.items():
                for name, (kind, stored) in state[period].items():
                    meters[name] = KINDS[kind]()
                    meters[name].load_state_dict(stored)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise UserError(
                f"the stored statistics are damaged ({error!r}): continue without them with --reset-meters"
            ) from error


def _plus(total: Any, value: Any) -> Any:
    """The sum of two numbers or tensors, of the type and on the device of the second tensor."""
    return (total.to(value) if isinstance(total, Tensor) and isinstance(value, Tensor) else total) + value
