"""A page of results: tables and bar charts of score files, by task and by language, without other files.

This module computes what the page shows, `results_page.html` lays it out.
"""

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jinja2

from fairseq_xl.errors import UserError, quoted
from fairseq_xl.evaluation.benchmarks import Variant, first_paper
from fairseq_xl.evaluation.paper_figures import Papers
from fairseq_xl.evaluation.score_files import BASELINES, BENCHMARKS, ScoreFile, read_json_object
from fairseq_xl.io.yaml_files import load

METRICS = {"f1": "F1", "ndcg": "nDCG", "bleu": "BLEU", "exact_match": "exact match"}
NAMES = {"xglue": "XGLUE", "xtreme": "XTREME"}
MARK = "*"  # of published figures that have a note
PUBLISHED_SPLIT = "test"  # published figures are of the test sets
NONE = "–"  # a cell without a value
SMALL = 25.0  # the axis ends here, and not at 100, if no value of a task is above
#: colors of text and of the systems' bars. WCAG 2.1: text has a contrast of 4.5 to the ground, bars and whiskers of 3
LIGHT = {"ground": "#ffffff", "text": "#111111", "quiet": "#595959", "line": "#d9d9d9", "note": "#fff4d6"}
DARK = {"ground": "#15181c", "text": "#ffffff", "quiet": "#b3b8bf", "line": "#3d434b", "note": "#3a3115"}
BARS = ("#0072b2", "#d55e00", "#00835f", "#b0609a", "#767676", "#8a6d00")


class Column(NamedTuple):
    """The heading of a column, and the class of its cells."""

    title: str
    kind: str = ""


class Row(NamedTuple):
    """A row of scores: numbers, and a chart in which they are bars."""

    name: str
    scores: Mapping[str, float | None]  # by system
    papers: Sequence[float]  # published scores, drawn as diamonds
    cells: Sequence[Iterable[str]]  # lines of the cells behind the chart
    intervals: Mapping[str, Sequence[float] | None] = {}  # by system, drawn as whiskers
    baseline: float | None = None  # drawn as a dashed line
    is_total: bool = False
    anchor: str = ""  # of the section that the name links to


class Table(NamedTuple):
    """A table; in one of scores, the columns of systems and the chart come after the first column."""

    caption: str
    columns: Sequence[Column]
    rows: Iterable[Any]  # each `Row`, or texts
    label: str = ""  # the subject, for screen readers
    systems: Sequence[str] = ()
    kind: str = ""  # class of the systems' cells
    end: float = 100.0  # of the axis of the chart


def page(files: Sequence[ScoreFile], settings: Mapping[str, Any], title: str, note: str = "") -> str:
    """The results page as HTML, of score files in the order of the systems, and of settings {path: content}."""
    systems = list(dict.fromkeys(file.system for file in files))
    by_benchmark = {name: {file.system: file for file in files if file.benchmark == name} for name in NAMES}
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {"number": number, "position": position}
    template = Path(__file__).with_suffix(".html").read_text(encoding="utf-8")
    return environment.from_string(re.sub(r"\n\s*", "", template)).render(
        **{"title": title, "note": note, "systems": systems, "light": LIGHT, "dark": DARK, "bars": BARS},
        colors={system: f"s{index % len(BARS)}" for index, system in enumerate(systems)},
        sections=[section(name, by_system) for name, by_system in by_benchmark.items() if by_system],
        tables=[files_table(files), signatures(files)],
        settings={shown_path(path): shown_settings(content) for path, content in settings.items()},
    )


def number(value: float | None, sign: str = "") -> str:
    """A number with one decimal, and with its sign if `sign` is +."""
    return NONE if value is None else f"{round(value, 1) + 0.0:{sign}.1f}".replace("-", "−")  # + 0.0: no -0.0


def position(value: float, end: float) -> str:
    """The position of a value on an axis from 0 to `end`."""
    return f"{100 * min(max(value / end, 0.0), 1.0):.2f}%"


def section(benchmark: str, files: Mapping[str, ScoreFile]) -> dict[str, Any]:
    """The tables of a benchmark from its score files by system."""
    tasks = BENCHMARKS[benchmark].tasks
    names = [name for name in tasks if any(name in file.tasks for file in files.values())]
    split = next(iter(files.values())).split
    papers = published_averages(benchmark, names, files)
    sources = list(dict.fromkeys(figures["source"] for row in papers.values() for figures in row.values()))
    text = f"Split {split}. Scores are percentages. A task's average is the mean over its languages and is left out if "
    text += f"one is missing. Published averages: {', '.join(sources)}." if sources else "one is missing."
    if sources and split != PUBLISHED_SPLIT:
        text += " They are of the test sets, so no difference from them is given."
    entries = [(name, file.tasks[name]) for name in names for file in files.values() if name in file.tasks]
    metrics = {metric for entry in entries for metric in variant_of(benchmark, *entry).metrics}
    return {
        "id": benchmark,
        "title": NAMES[benchmark],
        "text": text,
        "overview": overview(benchmark, names, files, papers),
        "notes": notes(papers),
        "absent": list(absent(benchmark, files)),
        "marks": ["interval", *(baseline for metric, baseline in BASELINES.items() if metric in metrics)],
        "tasks": [task_tables(benchmark, name, files) for name in names],
    }


def absent(benchmark: str, files: Mapping[str, ScoreFile]) -> Iterator[str]:
    """Sentences: the tasks without an average, and those with another variant than the benchmark's."""
    tasks = BENCHMARKS[benchmark].tasks
    for system, file in files.items():
        without = [name for name in tasks if "average" not in file.tasks.get(name, {})]
        variants = [name for name, entry in file.tasks.items() if entry["variant"] != tasks[name].official]
        texts = ("No average of", "Not scored as the benchmark does, and in no average over tasks:")
        for text, names in zip(texts, (without, variants)):
            if names:
                sentence = f"{system}: {text[0].lower()}{text[1:]}" if len(files) > 1 else text
                yield f"{sentence} {', '.join(names)}."


def published_averages(benchmark: str, names: Iterable[str], files: Mapping[str, ScoreFile]) -> dict[str, Papers]:
    """Published averages of the main paper, of tasks and of groups with an average: {name: {system: figures}}."""
    rows = {name: first_paper(task_papers(name, files)) for name in names}
    groups = {group: comparable(file.split, papers) for file in files.values() for group, papers in file.papers.items()}
    averaged = [name for name in BENCHMARKS[benchmark].groups if any(name in file.averages for file in files.values())]
    return rows | {group: groups.get(group, {}) for group in averaged}


def notes(papers: Mapping[str, Papers]) -> list[str]:
    """A line for each note of published figures, with its rows and systems."""
    rows_by_note: dict[str, list[tuple[str, str]]] = {}
    for row, row_papers in papers.items():
        for system, figures in row_papers.items():
            if figures.get("note"):
                rows_by_note.setdefault(figures["note"], []).append((row, system))
    lines = []
    for note, entries in rows_by_note.items():
        rows, systems = (list(dict.fromkeys(names)) for names in zip(*entries))
        lines.append(f"{MARK} {', '.join(rows)} of {' and '.join(systems)}: {note}.")
    return lines


def variant_of(benchmark: str, name: str, entry: Mapping[str, Any]) -> Variant:
    """The variant of the scores of a task."""
    return BENCHMARKS[benchmark].tasks[name].variants[entry["variant"]]


def overview(
    benchmark: str, names: list[str], files: Mapping[str, ScoreFile], published: Mapping[str, Papers]
) -> Table:
    """A table: task × averages of the systems, published ones, their differences, languages and metric."""
    rows = []
    for name, papers in published.items():
        if name in names:
            entries = {system: file.tasks[name] for system, file in files.items() if name in file.tasks}
            averages = {system: entries.get(system, {}).get("average") for system in files}
            extra = BENCHMARKS[benchmark].tasks[name].extra_languages
            scored = {system: scored_languages(entry, extra) for system, entry in entries.items()}
            languages = list(dict.fromkeys(scored.values()))
            if len(languages) > 1:
                languages = [f"{system}: {text}" for system, text in scored.items()]
            metric = next(iter(entries.values()))["metric"]
        else:
            averages = {system: file.averages.get(name) for system, file in files.items()}
            languages, metric = [NONE], f"mean of {len(BENCHMARKS[benchmark].groups[name])} tasks"
        cells = [[f"{system} {number(figures['average'])}{note_mark(figures)}" for system, figures in papers.items()]]
        cells += [[difference(value, figures) for figures in papers.values()] for value in averages.values()]
        rows.append(
            Row(
                name,
                averages,
                [figures["average"] for figures in papers.values()],
                [*(texts or [NONE] for texts in cells), languages, [metric]],
                is_total=name not in names,
                anchor=f"{benchmark}-{name}" if name in names else "",
            )
        )
    minus = [Column(title, "number") for title in minus_columns("paper", files)]
    columns = [Column("task"), Column("paper", "number"), *minus, Column("languages", "languages")]
    columns.append(Column("metric", "metric quiet"))
    return Table("Average of each task", columns, rows, systems=list(files), kind="number")


def minus_columns(paper: str, systems: Iterable[str]) -> list[str]:
    """The titles of the differences of systems from a paper."""
    names = list(systems)
    return [f"{system} minus {paper}" if len(names) > 1 else f"minus {paper}" for system in names]


def comparable(split: str, papers: Papers) -> Papers:
    """Published figures, marked as not comparable with scores of a split other than `PUBLISHED_SPLIT`."""
    if split == PUBLISHED_SPLIT:
        return papers
    return {paper: {**figures, "comparable": False, "other_split": True} for paper, figures in papers.items()}


def note_mark(figures: Mapping[str, Any]) -> str:
    """`MARK` if published figures have a note."""
    return MARK if figures.get("note") else ""


def difference(value: float | None, figures: Mapping[str, Any]) -> str:
    """A score minus the published average, if they can be compared."""
    is_comparable = value is not None and figures["average"] is not None and figures.get("comparable", True)
    return number(value - figures["average"], "+") if is_comparable else NONE


def task_papers(name: str, files: Mapping[str, ScoreFile]) -> Papers:
    """Published figures of a task in score files."""
    papers = [comparable(f.split, f.tasks[name].get("paper", {})) for f in files.values() if name in f.tasks]
    return {paper: figures for file_papers in papers for paper, figures in file_papers.items()}


def scored_languages(entry: Mapping[str, Any], extra: Iterable[str]) -> str:
    """The number of averaged languages (all but `extra`) with scores, and the missing ones: ``3 of 4, missing nl``."""
    missing, scored = entry["missing"], entry["languages"].keys() - set(extra)
    text = f"{len(scored)} of {len(scored) + len(missing)}"
    return f"{text}, missing {', '.join(missing)}" if missing else text


def task_tables(benchmark: str, name: str, files: Mapping[str, ScoreFile]) -> dict[str, Any]:
    """A task: for each metric a table language × system."""
    entries = {system: file.tasks[name] for system, file in files.items() if name in file.tasks}
    metrics = variant_of(benchmark, name, next(iter(entries.values()))).metrics
    papers, extra = task_papers(name, files), BENCHMARKS[benchmark].tasks[name].extra_languages
    is_published = papers != first_paper(papers) or any("f1" in figures for figures in papers.values())
    return {
        "name": name,
        "tables": [by_language(name, extra, metric, entries, papers) for metric in metrics],
        "published": published_table(name, metrics, entries, papers) if is_published else None,
        "notes": notes({name: papers}),
        "is_wide": any("languages" in figures for figures in papers.values()),  # columns of the papers
    }


def published_table(name: str, metrics: tuple[str, ...], entries: Mapping[str, Any], papers: Papers) -> Table:
    """A table: published system × score, its metrics if it is their mean, and the differences from it."""
    parts = metrics if len(metrics) > 1 else ()
    rows = []
    for system, figures in papers.items():
        cells = [number(figures["average"]) + note_mark(figures), *(number(figures.get(part)) for part in parts)]
        cells += [difference(entry.get("average"), figures) for entry in entries.values()]
        rows.append([system, figures["source"], *cells])
    titles = ["score", *(METRICS.get(part, part) for part in parts), *minus_columns("paper", entries)]
    columns = [Column("system"), Column("source", "source quiet"), *(Column(title, "number") for title in titles)]
    return Table("Published averages", columns, rows, name)


def by_language(name: str, extra: Iterable[str], metric: str, entries: Mapping[str, Any], papers: Papers) -> Table:
    """A table: language × score of each system, in numbers and as bars; languages of `extra` are not averaged."""
    codes = sorted({code for entry in entries.values() for code in (*entry["languages"], *entry["missing"])})
    by_code = {code: {system: entry["languages"].get(code) for system, entry in entries.items()} for code in codes}
    all_scores = [scores for by_system in by_code.values() for scores in by_system.values() if scores]
    counts = {scores["n"] for scores in all_scores}
    keys = [BASELINES[metric]] if any(BASELINES.get(metric) in scores for scores in all_scores) else []
    keys += ["n"] if len(counts) > 1 else []
    by_paper = {system: figures for system, figures in papers.items() if "languages" in figures}
    rows = []
    for code, by_system in by_code.items():
        scores = {system: row and row[metric] for system, row in by_system.items()}
        figures = [
            {"average": paper["languages"].get(code), "comparable": not paper.get("other_split")}
            for paper in by_paper.values()
        ]
        first = next(filter(None, by_system.values()), {})
        texts = [f"{first[key]:,}" if key == "n" and first else number(first.get(key)) for key in keys]
        rows.append(
            Row(
                f"{code} (not averaged)" if code in extra else code,
                scores,
                [paper["average"] for paper in figures if paper["average"] is not None],
                [[text] for text in (*texts, *paper_cells(scores, figures))],
                {system: row and row[f"{metric}_interval"] for system, row in by_system.items()},
                first.get(BASELINES.get(metric)),
            )
        )
    means = {system: None if entry["missing"] else entry[metric] for system, entry in entries.items()}
    if any(value is not None for value in means.values()):
        cells = [[text] for text in (*("" for _ in keys), *paper_cells(means, by_paper.values()))]
        rows.append(Row("average", means, [paper["average"] for paper in by_paper.values()], cells, is_total=True))
    caption = [next(iter(entries.values()))["metric"]]
    if metric in ("f1", "exact_match") and any("exact_match" in scores for scores in all_scores):
        caption = [METRICS[metric], f"the score of the task: {caption[0]}"]
    caption += [f"{count:,} examples in each language" for count in counts if len(counts) == 1]
    titles = keys + [title for paper in by_paper for title in (f"{paper} (paper)", *minus_columns(paper, entries))]
    columns = [Column("language"), *(Column(title, "number") for title in titles)]
    highest = max((scores[f"{metric}_interval"][1] for scores in all_scores), default=100.0)
    end = SMALL if highest <= SMALL else 100.0
    return Table("; ".join(caption), columns, rows, name, list(entries), "score", end)


def paper_cells(values: Mapping[str, float | None], papers: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Published figures, each with the differences of the systems' scores from it."""
    for figures in papers:
        yield number(figures["average"])
        yield from (difference(value, figures) for value in values.values())


def files_table(files: Sequence[ScoreFile]) -> Table:
    """Score files with the versions of packages."""
    packages = list(dict.fromkeys(package for file in files for package in file.versions))
    columns = [*map(Column, ("system", "benchmark", "split", *packages)), Column("file", "code")]
    rows = []
    for file in files:
        versions = (file.versions.get(package) or "not recorded" for package in packages)
        rows.append([file.system, NAMES[file.benchmark], file.split, *versions, shown_path(file.path)])
    return Table("Score files and versions of the packages that computed them", columns, rows)


def signatures(files: Iterable[ScoreFile]) -> Table:
    """The signatures of the scores of each task."""
    rows = dict.fromkeys((name, entry["signature"]) for file in files for name, entry in file.tasks.items())
    return Table("Signatures of the scores", [Column("task"), Column("signature", "code")], rows)


def read_settings(path: str) -> dict[str, Any]:
    """A YAML file of settings, or a JSON file, such as `step.json`; raises `UserError` unless it holds a mapping."""
    if Path(path).suffix == ".json":
        return read_json_object(path)
    content = load(path)
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected a mapping of settings, found {quoted(content)}")
    return content


def shown_path(path: str) -> str:
    """A path, relative to the current folder if it is inside of it."""
    absolute, current = Path(path).absolute(), Path.cwd()
    return str(absolute.relative_to(current)) if current in absolute.parents else path


def shown_settings(content: Mapping[Any, Any]) -> Table | str:
    """The commands of a step of an experiment as text, or a table of settings."""
    commands = content.get("commands")
    if isinstance(commands, list) and all(isinstance(command, list) for command in commands):
        return "\n".join(shlex.join(map(str, command)) for command in commands)
    return Table("Settings", [Column("setting"), Column("value")], flat(content))


def flat(content: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Nested mappings as (dotted key, value)."""
    if isinstance(content, dict) and content:
        return [row for key, value in content.items() for row in flat(value, f"{prefix}.{key}" if prefix else str(key))]
    return [(prefix, content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, default=str))]
