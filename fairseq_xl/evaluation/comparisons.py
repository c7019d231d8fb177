"""Scores of a benchmark beside the figures of papers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fairseq_xl.evaluation.paper_figures import Table, covers

if TYPE_CHECKING:
    from fairseq_xl.evaluation.benchmarks import Benchmark


def compare(benchmark: Benchmark, result: Mapping[str, Any], figures: Iterable[tuple[Table, str]]) -> list[Any]:
    """Scores, each with a figure of a paper and the difference, or the reason for which they are not comparable.

    `result` is that of `benchmarks.score_benchmark`, `figures` are tables and the names of their rows.
    """
    comparisons = []
    for table, row in figures:
        paper, column_tasks = f"{table.code}:{row}", table.column_tasks(benchmark.name)
        for column, cell in table.rows[row].items():
            name = column_tasks.get(column, table.task(benchmark.name) or "")
            language = "average" if column in column_tasks else column
            task = benchmark.tasks.get(name)  # None for a group of tasks
            entry = result["tasks"].get(name, {"average": result.get(name)})
            variant = entry.get("variant")
            metrics = task.variants[variant].metrics if task and variant else ("average",)
            by_language = {**entry.get("languages", {}), "average": entry}
            for metric, figure in zip(table.metrics if task and len(cell) > 1 else metrics, cell):
                if (score := by_language.get(language, {}).get(metric)) is None:
                    continue
                names = {"task": name, "language": language}
                comparison: dict[str, Any] = {"paper": paper, "source": table.source, **names}
                comparison |= {"metric": metric, "score": score, "figure": figure}
                if result["split"] != table.fields["split"]:
                    comparison["not comparable"] = f"the figure is of the split {table.fields['split']}"
                elif task and variant != task.official:
                    comparison["not comparable"] = f"the score is of the variant {variant}"
                elif task and column == "average" and not covers(table, task.languages):
                    comparison["not comparable"] = "the figure is an average over other languages"
                else:
                    comparison["difference"] = round(score - figure, 2)
                comparisons.append(comparison)
    return comparisons


def table_rows(comparisons: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    """The heading and the rows of a table of comparisons."""
    rows = [["paper", "task", "language", "metric", "score", "figure", "difference"]]
    for row in comparisons:
        reason = row.get("not comparable")
        difference = f"not comparable: {reason}" if reason else f"{row['difference']:+.1f}"
        names = [f"{row['paper']} ({row['source']})", row["task"], row["language"], row["metric"]]
        rows.append([*names, f"{row['score']:.1f}", str(row["figure"]), difference])
    return rows
