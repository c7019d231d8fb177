"""The picture of a table of scores."""

import statistics
import textwrap
from pathlib import Path

from recipes.intervals import share_interval


def draw(outcomes: dict[str, list[float]], path: Path, title: str, axis: str) -> None:
    """Draws each system's values as points, their mean as a tick and its interval as a line.

    Args:
        outcomes: name of a system -> values in percent, one per seed.
        path: of the picture.
        title, axis: of the picture, and of its axis of values.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 1.2 + 0.4 * len(outcomes)), layout="constrained")
    for row, values in enumerate(outcomes.values()):
        mean, interval = statistics.mean(values), share_interval(values)
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
