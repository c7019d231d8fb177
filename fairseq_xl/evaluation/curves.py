"""Training curves as a picture, from the JSON entries of fairseq-train's logs."""

import json
import logging
import math
import re
from pathlib import Path

from fairseq_xl.errors import UserError
from fairseq_xl.io.files import replacing

logger = logging.getLogger(__name__)

ENTRY = re.compile(r"\{\"epoch\": .*\}$")


SPREAD = 10  # the axis is logarithmic if the highest value is more than this many times the lowest


def read_log(path):
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
        raise UserError(f"{path} has no JSON entries: train with --log-format json")
    return entries


def _number(value):
    try:
        return float(value)
    except (TypeError, ValueError):  # null: a metric without a value, such as that of a corpus that was not sampled
        return float("nan")


def draw(logs, output, metric="loss"):
    """Draws `metric` over updates, training thin and validation thick: {name: path of a log} -> a picture at `output`.

    A log without the metric is left out, with a warning.
    """
    logging.getLogger("matplotlib").setLevel(logging.WARNING)  # fairseq leaves the root logger at DEBUG
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    form = Path(output).suffix.removeprefix(".") or "png"
    if form not in figure.canvas.get_supported_filetypes():
        raise UserError(f"--output {output}: {form!r} is not a picture format; .png, .pdf or .svg are")
    drawn, values = {}, []  # a line of each run; all values shown
    kinds = {
        "train_inner": ("training (thin)", {"alpha": 0.4, "linewidth": 1}),
        "valid": ("validation (thick)", {"marker": ".", "linewidth": 2}),
    }
    shown = {}
    for color, (name, path) in enumerate(logs.items()):
        entries = read_log(path)
        for kind, (described, style) in kinds.items():
            points = [(e["num_updates"], e[metric]) for e in entries[kind] if metric in e and "num_updates" in e]
            points = [point for point in points if math.isfinite(point[1])]
            if points:
                alone = {"marker": "."} if len(points) == 1 else {}  # a line of one point is invisible
                (drawn[name],) = axes.plot(*zip(*points), color=f"C{color}", **style | alone)
                values += [value for _, value in points]
                shown[kind] = described
        if name not in drawn:
            logger.warning("%s has no entry of %r: %s is not in the picture", path, metric, name)
    if not drawn:
        raise UserError(f"no entry of {metric!r} in {', '.join(map(str, logs.values()))}")
    axes.set(
        title=f"{metric} in {' and '.join(shown[kind] for kind in kinds if kind in shown)}",
        xlabel="updates",
        ylabel=f"{metric} (bits per token)" if "loss" in metric else metric,
    )
    if min(values) > 0 and max(values) > SPREAD * min(values):
        axes.set_yscale("log")
    figure.legend(drawn.values(), drawn.keys(), loc="outside right upper")  # beside the axes: it covers no curve
    with replacing(output) as file:
        figure.savefig(file, dpi=120, format=form)
    pyplot.close(figure)
