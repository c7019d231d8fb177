"""Figures of the papers' tables. `paper_figures.yaml` has them, and defines its fields and the codes of tables."""

import functools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_xl.errors import UserError
from fairseq_xl.io.yaml_files import load

#: figures of published systems, those of the main paper first: {system: {"source", "average", …}}
Papers = dict[str, dict[str, Any]]
#: values of the metrics of a table; empty for an empty cell
Cell = tuple[float, ...]
PATH = Path(__file__).with_suffix(".yaml")


@dataclass(frozen=True)
class Table:
    """A table of a paper, or one of its parts."""

    code: str
    paper: str
    system: str
    benchmark: str  # whose main paper it is
    columns: tuple[str, ...]
    rows: Mapping[str, Mapping[str, Cell]]
    metrics: tuple[str, ...]
    fields: Mapping[str, Any]  # as in the file

    def task(self, benchmark: str) -> str | None:
        """The task, or group of tasks, of a benchmark that the figures are of."""
        return self.fields.get("tasks", {}).get(benchmark)

    def column_tasks(self, benchmark: str) -> Mapping[str, str]:
        """{column: the task of a benchmark whose average it has}, of a table whose columns are tasks."""
        return self.fields.get("column_tasks", {}).get(benchmark, {})

    @property
    def source(self) -> str:
        return f"{self.paper}, table {self.code.partition('-T')[2]}"


def cell(text: Any) -> Cell:
    """``77.3/61.8`` -> (77.3, 61.8); a number without a point is an int."""
    return () if text == "–" else tuple(int(part) if part.isdecimal() else float(part) for part in str(text).split("/"))


@functools.cache
def tables() -> dict[str, list[Table]]:
    """{code: the parts of the table}."""
    content, result = load(PATH), {}
    for code, fields in content["tables"].items():
        result[code] = []
        for part in fields.get("parts", {"": {}}).values():
            part, paper = fields | part, content["papers"][code[0]]
            columns = tuple(str(part.get("columns", "")).split())
            texts = {
                name: row if isinstance(row, dict) else dict(zip(columns, str(row).split(), strict=True))
                for name, row in part.get("rows", {}).items()
            }
            rows = {name: {column: cell(text) for column, text in row.items()} for name, row in texts.items()}
            metrics = tuple(part.get("metrics", "").split("/"))
            names = paper["paper"], paper["system"], paper.get("benchmark", "")
            result[code].append(Table(code, *names, columns, rows, metrics, part))
    return {code: result[content["tables"][code].get("same", code)] for code in result}


def published(benchmark: str, task: str, languages: Collection[str] = (), metrics: Iterable[str] = ()) -> Papers:
    """Figures of a task, or of a group of tasks, that are shown beside its scores, those of the main paper first.

    Those of the main paper have `languages` if the score has one metric; averages over other languages have a note.
    """
    all_tables = [table for code, parts in tables().items() for table in parts if table.code == code]
    papers: Papers = {}
    for table in sorted(all_tables, key=lambda table: table.benchmark != benchmark):
        for row in table.fields.get("shown", ()) if table.task(benchmark) == task else ():
            values = dict(zip(table.metrics, table.rows[row]["average"]))
            scores = {metric: values[metric] for metric in metrics if metric in values} or values
            figures = papers[row] = {"source": table.paper, "average": round(sum(scores.values()) / len(scores), 2)}
            figures |= scores if len(scores) > 1 else {}
            by_language = {code: values[0] for code, values in table.rows[row].items() if code in languages}
            if table.benchmark == benchmark and by_language and len(scores) == 1:
                figures["languages"] = by_language
            if not covers(table, languages):
                figures |= {"note": "average over the languages of its paper", "comparable": False}
            if note := table.fields.get("notes", {}).get(row):
                figures["note"] = note
    return papers


def find_row(name: str, columns: Collection[str]) -> tuple[Table, Mapping[str, Cell]]:
    """The row ``CODE:ROW`` and its table, or the part with most of `columns`; raises `UserError` without such a row."""
    code, _, row = name.partition(":")
    parts = [table for table in tables().get(code, ()) if row in table.rows]
    if not parts:
        raise UserError(f"{name}: expected CODE:ROW, a table of {PATH.name} and one of its rows")
    table = max(parts, key=lambda table: len({*columns} & {*table.columns}))
    return table, table.rows[row]


def covers(table: Table, languages: Collection[str]) -> bool:
    """Whether the averages of a table are over `languages`, as far as it has columns of languages."""
    return not (by_language := {*table.columns} - {"average"}) or not languages or by_language == {*languages}


def compared_tables(benchmark: str) -> str:
    """``CODE (SYSTEM: TITLE), …`` of tables with figures of the tasks of a benchmark."""
    compared = {code: parts for code, parts in tables().items() if any(table.task(benchmark) for table in parts)}
    titles = {
        code: f"{parts[0].system}: {parts[0].fields['title'].partition(';')[0]}" for code, parts in compared.items()
    }
    titles |= {code: f"the figures of {parts[0].code}" for code, parts in compared.items() if parts[0].code != code}
    return ", ".join(f"{code} ({title})" for code, title in titles.items())


def example(benchmark: str) -> str:
    """``CODE:ROW`` of the main paper of a benchmark."""
    shown = [
        table for parts in tables().values() for table in parts if table.task(benchmark) and "shown" in table.fields
    ]
    return next(f"{table.code}:{table.fields['shown'][0]}" for table in shown if table.benchmark == benchmark)


def selected(arguments: Iterable[str], benchmark: str) -> list[tuple[Table, str]]:
    """Tables and rows with figures of a benchmark that ``CODE`` or ``CODE:ROW`` name; raises `UserError` for others.

    Case does not count.
    """
    result, codes = [], {code.lower(): code for code in tables()}
    for argument in arguments:
        code, _, name = argument.partition(":")
        parts = [table for table in tables().get(codes.get(code.lower(), ""), ()) if table.task(benchmark)]
        if not parts:
            reason = f" has no figure of {benchmark}" if code.lower() in codes else ""
            expected = f"expected CODE or CODE:ROW with one of the codes {compared_tables(benchmark)}"
            raise UserError(f"--compare {argument}{reason}: {expected}")
        rows = [(table, row) for table in parts for row in table.rows if name.lower() in ("", row.lower())]
        if not rows:
            names = dict.fromkeys(row for table in parts for row in table.rows)
            raise UserError(f"--compare {argument}: expected one of the rows {'; '.join(names)}")
        result += rows
    return result
