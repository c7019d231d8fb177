"""The cells of a report's tables: reads scores from score files, and formats means and intervals."""

import itertools
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairseq_xl.errors import UserError
from recipes.experiment_file import Experiment, Values
from recipes.score_files import entries, entry_of, read
from recipes.tables import mean_and_margin, mean_share, share_interval, with_interval


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class Cells:
    """The cells of an experiment's tables.

    Args:
        root: run of the experiment that includes this one; entries of `scores` are relative to it.
    """

    def __init__(self, experiment: Experiment, runs: list[Path], root: Path | None = None) -> None:
        self.experiment, self.runs, self.root = experiment, runs, root
        self.values = experiment.values  # those of the part that is being made
        self.scores: dict[str, Any] = {}  # content of the score files of tables, by `entry_of`

    def names(self, of: str | list) -> list[str]:
        return self.experiment.items(of, self.values)

    def expand(self, template: str, **extra: str) -> str:
        return self.experiment.expand(template, self.values | extra)

    def rows(self, specifications: list[dict]) -> Iterator[tuple[str, dict, Values]]:
        """Yields (name, specification, values) of each row; `for` makes several rows, `where` omits some."""
        for row in specifications:
            for values in self.experiment.combinations(row.get("for") or {}, self.values):
                if row.get("where", "output") not in values:
                    continue
                yield self.experiment.expand(row["name"], values), row, values

    def caption(self, text: str, first_only: str = "", **extra: str) -> str:
        """Expands a caption; {over} says what its means and intervals are over.

        `first_only` names the part whose figures are those of the first pre-training only.
        """
        text = self.expand(text, over=self.over(), **extra)
        if first_only and len(self.runs) > 1:
            return f"{text} {first_only}: pre-training 1 only.".lstrip()
        return text

    def over(self) -> str:
        """Describes the units of means and intervals: fine-tuning seeds or pre-trainings."""
        seeds = len(self.names("seeds")) if "seeds" in self.values else 1
        several = f"{seeds} fine-tuning seed{'s' * (seeds > 1)}"
        if len(self.runs) > 1 and seeds == 1:
            return f"mean over {len(self.runs)} pre-trainings with a fine-tuning each, and 95 % interval over them"
        if len(self.runs) == 1:
            return f"mean over {several}, one pre-training run, and 95 % interval over these seeds"
        means = f"mean over {len(self.runs)} pre-trainings of the mean over {several}"
        return f"{means}, and 95 % interval over the pre-trainings"

    def first_seed(self) -> str:
        return self.names("seeds")[0] if "seeds" in self.values else ""

    def cell_values(self, row: dict, values: Values, column: str, key: str, run: Path) -> list:
        """Reads the values at a row's key in the files of one cell; [] if one is missing."""
        values = values | {"column": column}
        template = {self.expand(name): of for name, of in (row.get("in") or {}).items()}.get(column, row["scores"])
        paths = self.experiment.words(template, values)
        contents = [read(run / path) for path in paths]
        entries_of = [entry_of((run / path).relative_to(self.root or run)) for path in paths]
        self.scores |= {entry: content for entry, content in zip(entries_of, contents) if content is not None}
        rows = [entries(content, self.experiment.expand(key, values)) for content in contents]
        return [] if [] in rows else list(itertools.chain.from_iterable(rows))

    def units(self, row: dict, values: Values, column: str) -> list[float] | None:
        """Returns the values of one cell, one per unit of its interval; None if one is missing.

        With one pre-training the units are fine-tuning seeds. With several they are the pre-trainings, each with the
        mean over its seeds. A row without {seed} is one unit, of the first pre-training.
        """
        run_cells = [
            [self.cell_values(row, seeded, column, row["key"], run) for seeded in self.seeded_values(row, values)]
            for run in self.seeded_runs(row)
        ]
        if any([] in cells for cells in run_cells):
            return None
        wrong = [value for cells in run_cells for cell in cells for value in cell if not is_number(value)]
        if wrong:
            where = self.expand(row["scores"], **values | {"seed": "*", "column": column})
            raise UserError(f"{self.experiment.path}: {row['key']} of {where}: {wrong[0]!r} is not a number")
        means = [list(map(statistics.mean, cells)) for cells in run_cells]
        return list(map(statistics.mean, means)) if len(means) > 1 else means[0]

    def seeded_values(self, row: dict, values: Values) -> list[Values]:
        """Returns the values with each seed of a row; one seed, "", for a row without {seed}."""
        seeds = self.names(row.get("seeds", "seeds")) if "{seed}" in row["scores"] else [""]
        return [values | {"seed": seed} for seed in seeds]

    def seeded_runs(self, row: dict) -> list[Path]:
        """Returns all runs, or the first one for a row without {seed}."""
        return self.runs if "{seed}" in row["scores"] else self.runs[:1]

    def cell(self, units: list[float] | None, row: dict, values: Values, column: str | None, both: bool = False) -> str:
        """Formats mean and interval: over the units, or for a single unit the interval in its file if it has one.

        `both`: "m (seeds l–h; examples l–h)", the intervals over the units and over test examples.
        """
        decimals = row.get("decimals", 1)
        if units is None:
            return ""
        if both:
            units_are = "seeds" if len(self.runs) == 1 else "pre-trainings"
            intervals = {units_are: share_interval(units), "examples": self.example_interval(row, values, column)}
            shown = [
                f"{name} {interval[0]:.{decimals}f}–{interval[1]:.{decimals}f}"
                for name, interval in intervals.items()
                if interval
            ]
            return f"{statistics.mean(units):.{decimals}f}" + (f" ({'; '.join(shown)})" if shown else "")
        if not row.get("percent", True):
            return mean_and_margin(units, decimals)
        if len(units) > 1 or "interval" not in row or column is None:
            return mean_share(units, decimals)
        bounds = self.cell_values(row, values | {"seed": self.first_seed()}, column, row["interval"], self.runs[0])
        if bounds and isinstance(bounds[0], list):
            low, high = map(statistics.mean, zip(*bounds))
            return with_interval(units[0], low, high, decimals)
        return f"{units[0]:.{decimals}f} ± {bounds[0]:.{decimals}f}" if bounds else f"{units[0]:.{decimals}f}"

    def example_interval(self, row: dict, values: Values, column: str | None) -> list[float] | None:
        """Returns the means over seeds and pre-trainings of a cell's interval over test examples; None without one."""
        if "interval" not in row or column is None:
            return None
        bounds = [
            bound
            for run in self.seeded_runs(row)
            for seeded in self.seeded_values(row, values)
            for bound in self.cell_values(row, seeded, column, row["interval"], run)
        ]
        return list(map(statistics.mean, zip(*bounds))) or None
