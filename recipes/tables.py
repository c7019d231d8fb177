"""Tables in Markdown and pictures of scores, with means and their 95 % confidence intervals."""

import math
import statistics
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from scipy.stats import t as student

from fairseq_xl.evaluation.paper_figures import find_row


def table(header: list, rows: Iterable[list]) -> list[str]:
    """Cells -> lines of a Markdown table."""
    return ["| " + " | ".join(map(str, row)) + " |" for row in [header, ["---"] * len(header), *rows]]


def paper_row(name: str, figures: str, columns: Sequence[str], averaged: Sequence[str], split: str) -> list[str]:
    """Returns the figures CODE:ROW of a paper as a row of a table: name and source, columns, and the average.

    The average is left empty if the paper's is over other columns than `averaged`; `split` is that of the other rows.
    """
    table, row = find_row(figures, columns)
    source = (
        table.source if split == table.fields["split"] else f"{table.source}; {table.fields['split']}, not comparable"
    )
    terms = table.fields.get("means", {}).get("average", " ".join({*table.columns} - {"average"})).split()
    cells = [row.get(column, ()) for column in columns]
    cells += [row.get("average", ()) if {*terms} == {*averaged} else ()] if averaged else []
    return [f"{name} ({source})", *("/".join(map(str, cell)) for cell in cells)]


def has_cells(rows: list[list]) -> bool:
    """Tells whether a cell beside the names is not empty."""
    return any(cell for _, *cells in rows for cell in cells)


def with_interval(value: float, low: float, high: float, decimals: int = 1) -> str:
    """Formats a value and its interval: "v (l–h)"."""
    return f"{value:.{decimals}f} ({low:.{decimals}f}–{high:.{decimals}f})"


def half_width(values: list[float]) -> float:
    """Returns half the width of the 95 % confidence interval of the mean: its standard error times Student's t."""
    return student.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5


def mean_interval(values: list[float]) -> list[float] | None:
    """Returns the 95 % confidence interval of the mean (Student's t), or None for one value."""
    mean = statistics.mean(values)
    return [mean - half_width(values), mean + half_width(values)] if len(values) > 1 else None


def share_interval(values: list[float]) -> list[float] | None:
    """Scores from 0 to 100 -> the 95 % interval of their mean, or None for one value or equal ones.

    Student's t on the logit scale by the delta method, logit m ± t s / (m (1 - m)), and back. It lies within 0 and 100,
    unlike the interval of the mean itself, and equals it where the error s is small.
    """
    if len(set(values)) == 1:
        return None
    share = statistics.mean(values) / 100
    middle, width = math.log(share / (1 - share)), half_width(values) / 100 / (share * (1 - share))
    return [50 * (1 + math.tanh((middle + side) / 2)) for side in (-width, width)]


def mean_share(values: list[float], decimals: int = 1) -> str:
    """Scores from 0 to 100 -> their mean and its interval (`share_interval`), "m (l–h)", or the mean alone."""
    mean, interval = statistics.mean(values), share_interval(values)
    return with_interval(mean, interval[0], interval[1], decimals) if interval else f"{mean:.{decimals}f}"


def mean_and_margin(values: list[float], decimals: int) -> str:
    """Numbers -> their mean and half the width of its 95 % confidence interval (Student's t), "m ± h".

    Two numbers give "m (l–h)", the mean and both numbers, because their interval is too wide; one number gives "m".
    """
    mean = statistics.mean(values)
    if len(values) == 2:
        return with_interval(mean, min(values), max(values), decimals)
    return f"{mean:.{decimals}f}" if len(values) == 1 else f"{mean:.{decimals}f} ± {half_width(values):.{decimals}f}"


def mean_difference(values: list[float]) -> str:
    """Differences -> their mean and half its 95 % interval (Student's t), "+m ± h"; one difference has no interval."""
    mean = f"{statistics.mean(values):+.1f}"
    return mean if len(values) == 1 else f"{mean} ± {half_width(values):.1f}"


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
