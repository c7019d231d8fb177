"""Patches of fairseq's metrics, for sums that stay on their device until they are read."""

import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from fairseq.logging import meters

from fairseq_xl.engine.metrics import DeviceSums


def install() -> None:
    """Lets fairseq log and restore `DeviceSums`, and average without reading."""
    meters.DeviceSums = DeviceSums  # fairseq restores a meter by the name of its class in this module
    meters.MetersDict.get_smoothed_value = _find_named_value(meters.MetersDict.get_smoothed_value)
    meters.MetersDict.get_smoothed_values = _add_named_values(meters.MetersDict.get_smoothed_values)
    meters.AverageMeter.update = _average_without_reading(meters.AverageMeter.update)


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
        named = [meter.named_values() for meter in self.values() if isinstance(meter, DeviceSums)]
        values = original(self)
        for each in named:
            values = OrderedDict(each) | values
        return values

    return get_smoothed_values


def _average_without_reading(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def update(self: meters.AverageMeter, val: Any, n: Any = 1) -> None:
        """Adds `n` values whose mean is `val`; with `n` a tensor, a mean of 0 values is left out on its device."""
        if val is None or not torch.is_tensor(n):
            original(self, val, n)
            return
        self.val, total = val, torch.where(n > 0, val * n, 0)
        self.sum = meters.type_as(self.sum, total) + total
        self.count = meters.type_as(self.count, n) + n

    return update
