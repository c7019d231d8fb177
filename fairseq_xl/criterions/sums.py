"""Sums of losses by name, which stay on their device until the log shows values."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


def total(logging_outputs: Sequence[Mapping[str, Any]], key: str) -> Any:
    """The sum of an entry over logging outputs."""
    return sum(log[key] for log in logging_outputs)


def log_losses(
    metrics: Any,
    loss: Tensor,
    size: Tensor | float,
    names: Sequence[str] = ("loss",),
    sums: Tensor | None = None,
    counts: Tensor | None = None,
    values: Callable[[Any], dict[str, float]] | None = None,
) -> None:
    """Logs `loss`, the mean loss in bits, and the values of sums; nothing waits for the GPU.

    The meter is named `_losses`.

    Args:
        metrics: `fairseq_xl.engine.metrics.Metrics`.
        loss: scalar, in nats.
        size: number of losses that it sums; of size 0 in all steps, `loss` has no value.
        names: "loss" and K names; the same object in each call.
        sums, counts: (K,) float64; None: K is 0.
        values: a function from {name: (sum, count)} to {name in the log: value}.
    """
    loss = loss.double().view(1)
    size = size.to(loss).view(1) if isinstance(size, Tensor) else torch.full_like(loss, size)
    columns = torch.stack([loss, size])
    if sums is not None and counts is not None:
        columns = torch.cat([columns, torch.stack([sums, counts])], dim=1)
    metrics.sums("_losses", columns, names, values)
    metrics.derived("loss", lambda meters: {"loss": _rounded(bits(meters["_losses"].read().get("loss")))})


def bits(sums: tuple[float, ...] | None) -> float | None:
    """Bits per prediction from (nats, predictions); None without predictions."""
    return sums[0] / sums[1] / math.log(2) if sums and sums[1] else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
