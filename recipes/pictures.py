"""Draws the picture of a table of scores."""

import statistics
import textwrap
from pathlib import Path

from recipes.intervals import mean_interval, share_interval


def draw(outcomes: dict[str, list[float]], path: Path, title: str, axis: str, percent: bool = True) -> None:
    """Draws each system's values as points, their mean as a tick and its 95 % interval as a line.

    Args:
        outcomes: name of a system -> values, one per seed.
        path: of the picture.
        title, axis: of the picture, and of its axis of values.
        percent: whether the values are percentages, with intervals on the logit scale (`share_interval`).
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 1.2 + 0.4 * len(outcomes)), layout="constrained")
    for row, values in enumerate(outcomes.values()):
        mean = statistics.mean(values)
        interval = share_interval(values) if percent else mean_interval(values)
        axes.plot(values, [row] * len(values), "o", color="tab:blue", alpha=0.4, markeredgewidth=0)
        axes.plot(mean, row, "|", color="black", markersize=14)
        if interval:
            axes.plot(interval, [row, row], color="black", linewidth=1)
    axes.set_yticks(range(len(outcomes)), [textwrap.fill(name, 34) for name in outcomes])
    axes.invert_yaxis()
    axes.set_xlabel(axis)
    figure.suptitle(title, x=0.01, ha="left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
