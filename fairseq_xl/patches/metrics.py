"""Patches of fairseq's metrics: sums that stay on their device until they are read, and their reduction over ranks."""

import contextlib
import functools
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from fairseq import trainer
from fairseq.distributed import utils as distributed_utils
from fairseq.logging import meters, metrics
from torch import Tensor

#: a function from {name: its R sums} to {name in the log: value}
Values = Callable[[dict[str, tuple[float, ...]]], dict[str, float]]

_unread = False  # whether the values of meters are not read: fairseq reads them in every step and ignores them
_weight: Tensor | None = None  # what `kept_if` sets: 1 or 0, a float64 scalar on the device of what is logged


def install() -> None:
    """Lets fairseq log and restore `DeviceSums`, and sums statistics over ranks without reads between log intervals."""
    meters.DeviceSums = DeviceSums  # fairseq restores a meter by the name of its class in this module
    meters.MetersDict.get_smoothed_value = _find_named_value(meters.MetersDict.get_smoothed_value)
    meters.MetersDict.get_smoothed_values = _add_named_values(meters.MetersDict.get_smoothed_values)
    trainer.Trainer._reduce_and_log_stats = _skip_reading_metrics(trainer.Trainer._reduce_and_log_stats)
    meters.AverageMeter.update = _average_without_reading(meters.AverageMeter.update)
    distributed_utils.all_reduce_dict = all_reduce_dict
    trainer.Trainer._aggregate_logging_outputs = _never_zero(trainer.Trainer._aggregate_logging_outputs)


@contextlib.contextmanager
def kept_if(kept: Tensor) -> Iterator[None]:
    """Context whose numbers and tensors are logged only if `kept`, a boolean scalar on their device, is true.

    Nothing is read: meters that average and `DeviceSums` add 0 in place of any value, NaN included, and count 0. A mean
    over 0 values is the last value.
    """
    global _weight
    before, _weight = _weight, kept.double()
    try:
        yield
    finally:
        _weight = before


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
        if _weight is not None:
            sums = torch.where(_weight > 0, sums, 0)
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


def _find_named_value(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def get_smoothed_value(self: meters.MetersDict, key: str) -> Any:
        """The value of a meter, or one of the named values of a `DeviceSums` meter."""
        if key not in self:
            for meter in self.values():
                if isinstance(meter, DeviceSums) and key in (named := meter.named_values()):
                    return named[key]
        return original(self, key)

    return get_smoothed_value


def _add_named_values(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def get_smoothed_values(self: meters.MetersDict) -> dict[str, Any]:
        """The values of all meters, with the named values of `DeviceSums` meters."""
        if _unread:
            return OrderedDict()
        named = [meter.named_values() for meter in self.values() if isinstance(meter, DeviceSums)]
        values = original(self)
        for each in named:
            values = OrderedDict(each) | values
        return values

    return get_smoothed_values


def _skip_reading_metrics(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _reduce_and_log_stats(self: Any, logging_outputs: Any, sample_size: Any, grad_norm: Any = None) -> Any:
        """Logs the statistics of a step; of a task of this package it returns the sample size only."""
        unread = hasattr(self.task, "describe_batch")
        with _values_unread() if unread else contextlib.nullcontext():
            return original(self, logging_outputs, sample_size, grad_norm)

    return _reduce_and_log_stats


@contextlib.contextmanager
def _values_unread() -> Iterator[None]:
    global _unread
    before, _unread = _unread, True
    try:
        yield
    finally:
        _unread = before


def _average_without_reading(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def update(self: meters.AverageMeter, val: Any, n: Any = 1) -> None:
        """Adds `n` values whose mean is `val`; with `n` a tensor, a mean of 0 values is left out on its device."""
        if _weight is not None and isinstance(val, (int, float, Tensor)):  # not an array of counted translations
            n = _weight * n
        if val is None or not torch.is_tensor(n):
            original(self, val, n)
            return
        self.val, total = val, torch.where(n > 0, val * n, 0)
        self.sum = meters.type_as(self.sum, total) + total
        self.count = meters.type_as(self.count, n) + n

    return update


def all_reduce_dict(data: Mapping[str, Any], device: torch.device, group: Any) -> dict[str, Tensor]:
    """Sums numbers and tensors over ranks by one all-reduce; nothing waits for the device.

    Args:
        data: {name: a number, or a tensor on the host or on `device`}, of the same names and shapes on every rank.
        device: device of the reduction.
        group: group of the ranks.

    Returns: {name: sum, a float64 tensor on `device`}.
    """
    values = {name: torch.as_tensor(value, dtype=torch.double) for name, value in data.items()}
    flat = {name: value.reshape(-1) for name, value in values.items()}
    sizes = {name: value.numel() for name, value in values.items()}
    on_host = [name for name, value in values.items() if value.device.type != device.type]
    if on_host:
        copied = _copy_to_device(torch.cat([flat[name] for name in on_host]), device)
        flat |= zip(on_host, copied.split([sizes[name] for name in on_host]), strict=True)
    sums = torch.cat(list(flat.values()))  # in the order of `data`, which does not depend on where the values are
    distributed_utils.all_reduce(sums, group=group)
    parts = sums.split(list(sizes.values()))
    return {name: part.view(values[name].shape) for name, part in zip(values, parts, strict=True)}


def _copy_to_device(values: Tensor, device: torch.device) -> Tensor:
    """A copy for which the host does not wait: a GPU copies pinned memory only in this way."""
    return (values.pin_memory() if device.type == "cuda" else values).to(device, non_blocking=True)


class _SampleSize(Tensor):
    """A sample size that is not 0, so that ``sample_size or 1.0`` reads no value. Results are plain tensors."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return True


def _never_zero(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _aggregate_logging_outputs(self: Any, logging_outputs: Any, *stats: Any, ignore: bool = False) -> Any:
        """Sums statistics over ranks; the first of `stats`, the sample size, becomes 1 if it is 0, on its device."""
        logging_outputs, (size, *others) = original(self, logging_outputs, *stats, ignore=ignore)
        if torch.is_tensor(size):
            size = torch.where(size == 0, 1, size).as_subclass(_SampleSize)
        return logging_outputs, (size, *others)

    return _aggregate_logging_outputs
