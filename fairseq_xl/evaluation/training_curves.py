"""Training curves as a picture, from the JSON entries of fairseq-train's logs."""

import json
import logging
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq_xl.errors import UserError
from fairseq_xl.io.files import replacing

logger = logging.getLogger(__name__)

ENTRY = re.compile(r"\{\"epoch\": .*\}$")
SPREAD = 10  # the axis is logarithmic if the highest value is more than this many times the lowest


def read_log(path: str | Path) -> dict[str, list[dict[str, float]]]:
    """Log file -> {"train_inner" | "train" | "valid": [entries]}, each entry a dict of floats with its num_updates."""
    if not Path(path).is_file():
        raise UserError(f"{path}: no such log")
    entries = {"train_inner": [], "train": [], "valid": []}
    for line in Path(path).read_text(encoding="utf-8", errors="replace").splitlines():
        match = ENTRY.search(line)
        if match:
            try:
                entry = json.loads(match[0])
            except json.JSONDecodeError:  # a line that was cut short when the run was killed
                continue
            kind = next((kind for kind in ("train", "valid") if f"{kind}_loss" in entry), "train_inner")
            entries[kind].append({key.removeprefix(f"{kind}_"): _number(value) for key, value in entry.items()})
    if not any(entries.values()):
        raise UserError(f"{path} has no JSON entries of a training")
    return entries


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):  # null: a metric without a value, such as that of a corpus that was not sampled
        return float("nan")


def validation_curves(logs: Mapping[str, str | Path], metric: str = "loss") -> dict[str, dict[str, Any]]:
    """{name: path of a log} -> {name: {"values": {updates: validation value}, "last": value}}."""
    valid_curves = {name: curves(path, metric)["valid"] for name, path in logs.items()}
    for name, path in logs.items():
        if not valid_curves[name]:
            raise UserError(f"{path}: no validation entry has the metric {metric!r}")
    return {name: {"values": dict(curve), "last": curve[-1][1]} for name, curve in valid_curves.items()}


def curves(path: str | Path, metric: str) -> dict[str, list[tuple[int, float]]]:
    """The curves of a log: {"train_inner" | "train" | "valid": [(updates, value)]}, without infinities and NaN."""
    return {
        kind: [
            (round(entry["num_updates"]), entry[metric])
            for entry in entries
            if "num_updates" in entry and math.isfinite(entry.get(metric, math.nan))
        ]
        for kind, entries in read_log(path).items()
    }


def draw(logs: Mapping[str, str | Path], output: str | Path, metric: str = "loss") -> None:
    """Draws `metric` over updates from logs {name: path}; logs a warning for a log without the metric."""
    logging.getLogger("matplotlib").setLevel(logging.WARNING)  # fairseq leaves the root logger at DEBUG
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    format_name = Path(output).suffix.removeprefix(".") or "png"
    if format_name not in figure.canvas.get_supported_filetypes():
        raise UserError(f"--output {output}: {format_name!r} is not a picture format; .png, .pdf or .svg are")
    handles, values = {}, []  # a line of each run; all values shown
    kinds: dict[str, tuple[str, str, dict[str, Any]]] = {
        "train_inner": ("training", "thin", {"alpha": 0.4, "linewidth": 1}),
        "valid": ("validation", "thick", {"marker": ".", "linewidth": 2}),
    }
    shown = set()
    for color, (name, path) in enumerate(logs.items()):
        run_curves = curves(path, metric)
        for kind, (_, _, style) in kinds.items():
            curve = run_curves[kind]
            if curve:
                marker = {"marker": "."} if len(curve) == 1 else {}  # a line of one point is invisible
                (handles[name],) = axes.plot(*zip(*curve), color=f"C{color}", **style | marker)
                values += [value for _, value in curve]
                shown.add(kind)
        if name not in handles:
            logger.warning("%s has no entry of %r: %s is not in the picture", path, metric, name)
    if not handles:
        raise UserError(f"no entry of {metric!r} in {', '.join(map(str, logs.values()))}")
    captions = [
        f"{label} ({width})" if len(shown) > 1 else label for kind, (label, width, _) in kinds.items() if kind in shown
    ]
    axes.set(
        title=f"{metric} in {' and '.join(captions)}",
        xlabel="updates",
        ylabel=f"{metric} (bits per token)" if "loss" in metric else metric,
    )
    if min(values) > 0 and max(values) > SPREAD * min(values):
        axes.set_yscale("log")
    figure.legend(handles.values(), handles.keys(), loc="outside right upper")  # beside the axes: it covers no curve
    with replacing(output) as file:
        figure.savefig(file, dpi=120, format=format_name)
    pyplot.close(figure)
