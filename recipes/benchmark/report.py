"""Writes the results of `measure` as a picture, and the profiles as tables."""

import logging
from math import nan
from pathlib import Path
from typing import Any

NAMES = {
    "fairseq_xl": "fairseq_xl",
    "fairseq_xl --compile": "fairseq_xl --compile",
    "fairseq": "fairseq masked_lm",
    "transformers": "transformers XLM-R",
}
OUTPUT_LOSS_NAMES = {
    "torch linear_cross_entropy": "fairseq_xl, torch's loss",
    "liger-kernel": "fairseq_xl, liger-kernel's loss",
}
COLORS = dict(zip([*NAMES, *OUTPUT_LOSS_NAMES], ("C0", "C9", "C1", "C2", "C3", "C4")))
BESIDE = {"fontsize": "x-small", "loc": "center left", "bbox_to_anchor": (1, 0.5)}  # legends right of their picture


def write_profile(results: dict, output: Path) -> None:
    """Writes the milliseconds of one step by kind of operation and system, and each system's slowest operators."""
    lines = []
    for name, case in results["cases"].items():
        profiles = case["profile"]
        if not profiles:  # all systems have failed
            continue
        lines += [name, f"{'milliseconds of a step':24}" + "".join(f"{system:>22}" for system in profiles)]
        for kind in next(iter(profiles.values()))["kinds"]:
            lines.append(f"{kind:24}" + "".join(f"{profile['kinds'][kind]:22.1f}" for profile in profiles.values()))
        totals = [sum(profile["kinds"].values()) for profile in profiles.values()]
        lines.append(f"{'all':24}" + "".join(f"{total:22.1f}" for total in totals))
        for system, profile in profiles.items():
            lines += ["", f"{NAMES[system]:48}{'ms':>10}{'calls':>8}"]
            lines += [f"{name[:47]:48}{spent:10.1f}{calls:8}" for name, spent, calls in profile["operators"]]
        lines.append("")
    output.write_text("\n".join(lines), encoding="utf-8")


def write_picture(results: dict, output: Path) -> None:
    """Draws, for each case, tokens per second, the output layer's speed and peak memory, and a profile of the first."""
    logging.getLogger("matplotlib").setLevel(logging.WARNING)  # fairseq leaves the root logger at DEBUG
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    cases = results["cases"]
    figure, axes = pyplot.subplots(2, 2, figsize=(14, 4 + 1.2 * len(cases)), layout="constrained")
    (speed, memory), (head, time) = axes
    tokens = {name: case["tokens_per_second"] for name, case in cases.items()}
    _bars(speed, "training step", "tokens per second", tokens)
    bounds = [case["tokens_per_second"].get("matmul", nan) for case in cases.values()]
    for row, bound in enumerate(bounds):
        label = "matrix products alone" if row == 0 else None
        speed.plot([bound] * 2, [row - 0.4, row + 0.4], "k--", label=label)
    speed.legend(**BESIDE)
    peaks = {name: {system: peak / 1024 for system, peak in case["peak_mib"].items()} for name, case in cases.items()}
    if "memory" in results:
        label = f"vocabulary {results['memory']['vocabulary']:,}, without optimizer"
        peaks[label] = {system: peak / 1024 for system, peak in results["memory"]["peak_mib"].items()}
    _bars(memory, "peak memory", "GiB", peaks)
    outputs = {
        name: {system: ratio["median"] for system, ratio in case["output_layer"]["times_fairseq"].items()}
        for name, case in cases.items()
    }
    _bars(head, "output layer and loss alone", "speed in times fairseq's", outputs, NAMES | OUTPUT_LOSS_NAMES)
    for name, case in [item for item in cases.items() if item[1]["profile"]][:1]:
        _draw_profile(time, name, case)
    figure.savefig(output, dpi=120)
    pyplot.close(figure)


def _draw_profile(time: Any, name: str, case: dict) -> None:
    """Draws the milliseconds of one profiled step of each system by kind of operation."""
    systems, beneath = list(case["profile"]), [0.0] * len(case["profile"])
    for i, kind in enumerate(case["profile"][systems[0]]["kinds"]):
        widths = [case["profile"][system]["kinds"][kind] for system in systems]
        color = f"C{i}" if i < 10 else "lightgrey"
        time.barh([NAMES[system] for system in systems], widths, left=beneath, label=kind, color=color)
        beneath = [low + width for low, width in zip(beneath, widths)]
    time.invert_yaxis()
    time.set(title=f"one profiled step, {name}", xlabel="milliseconds")
    time.title.set_fontsize("medium")
    time.legend(**BESIDE)


def _bars(axes: Any, title: str, label: str, values: dict, names: dict = NAMES) -> None:
    """Draws a bar of each system for each case: {case: {system: value}}; `names` are the systems in the legend."""
    shown = {system: name for system, name in names.items() if any(system in systems for systems in values.values())}
    height = 0.8 / max(len(shown), 1)
    for i, (system, name) in enumerate(shown.items()):
        rows = [row + height * (i + 0.5) - 0.4 for row, systems in enumerate(values.values()) if system in systems]
        widths = [systems[system] for systems in values.values() if system in systems]
        axes.barh(rows, widths, height=height, label=name, color=COLORS[system])
    axes.set_yticks(range(len(values)), [name.replace(", vocabulary", ",\nvocabulary") for name in values])
    axes.invert_yaxis()
    axes.set(title=title, xlabel=label)
    axes.tick_params(axis="y", labelsize="small")
    axes.legend(**BESIDE)
