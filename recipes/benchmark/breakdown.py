"""Profiles a training step with torch and sums its time by kind of operation."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from torch.profiler import ProfilerActivity, profile

#: kind -> (names of operators, names of surrounding autograd nodes or ranges). The first kind with a matching operator
#: applies; if there is none, the first kind with a matching surrounding, inner before outer ones.
KINDS = {
    "matrix products": ({"mm", "addmm", "addmm_", "bmm", "baddbmm", "baddbmm_"}, ()),
    "softmax": ({"_softmax", "_softmax_backward_data", "softmax"}, ()),
    "random numbers": ({"bernoulli_", "random_"}, ()),
    "layer norm": ({"native_layer_norm", "native_layer_norm_backward"}, ()),
    "GELU": ({"gelu", "gelu_backward"}, ()),
    "optimizer": ((), ("Optimizer.step", "optimizer")),
    "cross-entropy": (
        {"_log_softmax", "_log_softmax_backward_data", "nll_loss_forward", "nll_loss_backward"},
        ("_CrossEntropy", "NllLoss", "LogSoftmax", "cross_entropy"),
    ),
    "attention, the rest": (
        (),
        (
            "_Products",
            "scaled_dot_product_attention",
            "ScaledDotProduct",
            "BmmBackward",
            "BaddbmmBackward",
            "_safe_softmax",
        ),
    ),
    "dropout, the rest": ((), ("_Dropped", "aten::dropout", "MulBackward")),
    "embeddings": (
        {"embedding", "embedding_dense_backward"},
        ("Embedding", "IndexBackward", "AccumulateGrad", "_Lookup", "_TwoUses"),
    ),
}


def profiled(step: Callable[[], float], device: str) -> dict:
    """Runs a step under torch's profiler.

    Returns:
        `kinds`: {kind: milliseconds} for the kinds in `KINDS` and "other"; `operators`: the 15 slowest, as [name,
        milliseconds, calls]. Times are CPU times, on CUDA GPU times, without the operators that an operator calls.
    """
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device == "cuda" else [])
    with profile(activities=activities) as recorded:
        step()
    kinds, operators = defaultdict(float), defaultdict(lambda: [0.0, 0])
    for event in recorded.events():
        if device == "cuda" and event.device_type.name != "CPU":
            continue  # a kernel, counted with the operator that launches it
        spent = event.self_device_time_total if device == "cuda" else event.self_cpu_time_total
        kinds[kind_of(event)] += spent / 1000
        operators[event.name][0] += spent / 1000
        operators[event.name][1] += 1
    longest = sorted(operators.items(), key=lambda item: -item[1][0])[:15]
    return {
        "kinds": {kind: round(kinds[kind], 2) for kind in [*KINDS, "other"]},
        "operators": [[name, round(spent, 2), calls] for name, (spent, calls) in longest],
    }


def kind_of(event: Any) -> str:
    """Returns the kind in `KINDS` of an event of torch's profile, or "other"."""
    name = event.name.removeprefix("aten::")
    for kind, (operators, _) in KINDS.items():
        elsewhere = _within(event, "optimizer") or (kind == "softmax" and _within(event, "_CrossEntropy"))
        if name in operators and not elsewhere:
            return kind
    while event is not None:
        for kind, (_, surroundings) in KINDS.items():
            if any(part in event.name for part in surroundings):
                return kind
        event = event.cpu_parent
    return "other"


def _within(event: Any, name: str) -> bool:
    while event is not None:
        if event.name == name:
            return True
        event = event.cpu_parent
    return False
