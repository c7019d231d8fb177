"""A page of results: tables and bar charts of score files, by task and by language."""

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from fairseq_xl.errors import UserError, quoted
from fairseq_xl.evaluation.benchmarks import Task
from fairseq_xl.evaluation.bleu import read_lines
from fairseq_xl.evaluation.page_parts import (
    NONE,
    Html,
    axis,
    axis_end,
    chart,
    column,
    document,
    for_each,
    key,
    lines,
    number,
    system_columns,
    table,
    tag,
)
from fairseq_xl.evaluation.score_files import BASELINES, GROUPS, TASKS, ScoreFile, read_json_object

METRICS = {"f1": "F1", "ndcg": "nDCG", "bleu": "BLEU", "exact_match": "exact match"}
BENCHMARKS = {  # name and source of the published figures
    "xglue": ("XGLUE", "Liang et al. 2020, tables 4 and 5"),
    "xtreme": ("XTREME", "Luo et al. 2020, table 3"),
}


def page(files: Sequence[ScoreFile], settings: Mapping[str, Any], title: str, note: str = "") -> str:
    """The page.

    Args:
        files: scores, in the order of the systems.
        settings: {path: content of a settings file}.
        title, note: heading, and a text below it.
    """
    systems = list(dict.fromkeys(file.system for file in files))
    sections, anchors = [], {}
    for benchmark, (shown, _) in BENCHMARKS.items():
        found = {file.system: file for file in files if file.benchmark == benchmark}
        if found:
            names = [name for name in TASKS[benchmark] if any(name in file.tasks for file in found.values())]
            sections.append(benchmark_section(benchmark, names, found, systems))
            anchors |= {benchmark: shown} | {f"{benchmark}-{name}": name for name in names}
    anchors["settings"] = "Settings"
    links = [tag("li", tag("a", shown, href=f"#{anchor}")) for anchor, shown in anchors.items()]
    body = [
        tag("h1", title),
        *([tag("p", note, class_="note")] if note else []),
        tag("nav", tag("ul", *links), aria_label="Sections"),
        tag("main", *sections, settings_section(files, settings), class_="many" if len(systems) > 2 else None),
    ]
    return document(title, body)


def benchmark_section(benchmark: str, names: list[str], found: Mapping[str, ScoreFile], systems: list[str]) -> Html:
    """The tables of a benchmark.

    Args:
        names: the tasks that at least one file has.
        found: the files of the benchmark by system.
        systems: all systems of the page; their order gives the colors.
    """
    shown, source = BENCHMARKS[benchmark]
    split = next(iter(found.values())).split
    absent = []
    for system, file in found.items():
        without = [name for name in TASKS[benchmark] if "average" not in file.tasks.get(name, {})]
        named = f"{system}: no average of" if len(found) > 1 else "No average of"
        absent += [tag("p", f"{named} {', '.join(without)}.", class_="quiet")] if without else []
    metrics = {metric for name in names for metric in TASKS[benchmark][name].metrics}
    return tag(
        "section",
        tag("h2", shown, id=benchmark),
        tag(
            "p",
            f"Split {split}. Scores are percentages. A task's average is the mean over its languages and is left out "
            f"if one is missing. Published averages: {source}.",
        ),
        overview(benchmark, names, found, systems),
        key("paper"),
        *absent,
        tag(
            "p",
            "Scores by language have a 95 % bootstrap interval over the test examples, which does not include the "
            "variation between training seeds.",
        ),
        key("interval", *(baseline for metric, baseline in BASELINES.items() if metric in metrics)),
        tag("div", *(task_section(benchmark, name, found, systems) for name in names), class_="tasks"),
    )


def overview(benchmark: str, names: list[str], found: Mapping[str, ScoreFile], systems: list[str]) -> Html:
    """A table: task × averages of the systems, published ones, their differences, languages and metric."""
    papers = {paper for name in names for paper in paper_of(name, found)}
    minus = [f"{system} minus paper" if len(found) > 1 else "minus paper" for system in found]
    head = tag(
        "tr",
        column("task"),
        *system_columns(found, systems, "number"),
        axis(100),
        column(f"{min(papers)} (paper)" if len(papers) == 1 else "paper", class_="number"),
        *(column(text, class_="number") for text in minus),
        column("languages"),
        column("metric"),
    )
    rows = [overview_row(benchmark, name, found, systems, name_papers=len(papers) > 1) for name in names]
    for group, members in GROUPS[benchmark].items():
        averages = {system: file.averages.get(group) for system, file in found.items()}
        if any(value is not None for value in averages.values()):
            cells = [tag("td", number(value), class_="number") for value in averages.values()]
            cells.append(chart(averages, systems))
            cells += [tag("td") for _ in ("paper", *found, "languages")]
            cells.append(tag("td", f"mean of {len(members)} tasks", class_="metric quiet"))
            rows.append(tag("tr", tag("th", group, scope="row"), *cells, class_="total"))
    return table("Average of each task", head, rows)


def overview_row(
    benchmark: str, name: str, found: Mapping[str, ScoreFile], systems: list[str], name_papers: bool
) -> Html:
    """A task in the table of averages; `name_papers`: whether published averages need the names of their systems."""
    entries = {system: file.tasks[name] for system, file in found.items() if name in file.tasks}
    averages = {system: entries.get(system, {}).get("average") for system in found}
    papers = paper_of(name, found)
    published = [f"{paper} {number(value)}" if name_papers else number(value) for paper, value in papers.items()]
    others = TASKS[benchmark][name].others
    scored = {system: scored_languages(entry, others) for system, entry in entries.items()}
    cells = [tag("td", number(value), class_="number") for value in averages.values()]
    cells.append(chart(averages, systems, papers=papers.values()))
    cells.append(tag("td", *lines(published), class_="number"))
    for value in averages.values():
        differences = [NONE if value is None else number(value - paper, "+") for paper in papers.values()]
        cells.append(tag("td", *lines(differences), class_="number"))
    cells.append(tag("td", *for_each(scored), class_="languages"))
    cells.append(tag("td", next(iter(entries.values()))["metric"], class_="metric quiet"))
    return tag("tr", tag("th", tag("a", name, href=f"#{benchmark}-{name}"), scope="row"), *cells)


def paper_of(name: str, found: Mapping[str, ScoreFile]) -> dict[str, float]:
    """Published averages of a task in score files: {system: average}."""
    entries = [file.tasks[name] for file in found.values() if name in file.tasks]
    return {paper: value for entry in entries for paper, value in entry.get("paper", {}).items()}


def scored_languages(entry: Mapping[str, Any], others: Iterable[str]) -> str:
    """How many of the averaged languages, all but `others`, have scores, and which have not: ``3 of 4, missing nl``."""
    missing, scored = entry["missing"], entry["languages"].keys() - set(others)
    text = f"{len(scored)} of {len(scored) + len(missing)}"
    return f"{text}, missing {', '.join(missing)}" if missing else text


def task_section(benchmark: str, name: str, found: Mapping[str, ScoreFile], systems: list[str]) -> Html:
    """A task: for each metric a table language × system."""
    task = TASKS[benchmark][name]
    entries = {system: file.tasks[name] for system, file in found.items() if name in file.tasks}
    tables = [by_language(name, task, metric, entries, systems) for metric in task.metrics]
    return tag("section", tag("h3", name, id=f"{benchmark}-{name}"), *tables)


def by_language(name: str, task: Task, metric: str, entries: Mapping[str, Any], systems: list[str]) -> Html:
    """A table: language × score of each system with its interval, in numbers and as bars with whiskers.

    `entries` are those of the task in the systems' score files.
    """
    codes = sorted({code for entry in entries.values() for code in (*entry["languages"], *entry["missing"])})
    scores = {code: {system: entry["languages"].get(code) for system, entry in entries.items()} for code in codes}
    known = [found for of_code in scores.values() for found in of_code.values() if found]
    end = axis_end(found[f"{metric}_interval"][1] for found in known)
    counts = {found["n"] for found in known}
    extra = [BASELINES[metric]] if any(BASELINES.get(metric) in found for found in known) else []
    extra += ["n"] if len(counts) > 1 else []
    rows = []
    for code, of_code in scores.items():
        label = f"{code} (not averaged)" if code in task.others else code
        rows.append(tag("tr", tag("th", label, scope="row"), *language_cells(of_code, metric, extra, end, systems)))
    means = {system: None if entry["missing"] else entry[metric] for system, entry in entries.items()}
    if any(value is not None for value in means.values()):
        cells = [*(score_cell(value) for value in means.values()), chart(means, systems, end)]
        rows.append(tag("tr", tag("th", "average", scope="row"), *cells, *(tag("td") for _ in extra), class_="total"))
    caption = [next(iter(entries.values()))["metric"]]
    if len(task.metrics) > 1:
        caption = [METRICS.get(metric, metric), f"the score of the task: {caption[0]}"]
    caption += [f"{count:,} examples in each language" for count in counts if len(counts) == 1]
    head = [column("language"), *system_columns(entries, systems, "score"), axis(end)]
    head += [column(title, class_="number") for title in extra]
    return table("; ".join(caption), tag("tr", *head), rows, name)


def language_cells(
    scores: Mapping[str, Any], metric: str, extra: Iterable[str], end: float, systems: list[str]
) -> list[Html]:
    """The cells of a language: scores of the systems, their chart, and what `extra` names."""
    values = {system: found and found[metric] for system, found in scores.items()}
    intervals = {system: found and found[f"{metric}_interval"] for system, found in scores.items()}
    of_references = next(filter(None, scores.values()), {})
    baseline = of_references.get(BASELINES.get(metric))
    cells = [score_cell(values[system], intervals[system]) for system in scores]
    cells.append(chart(values, systems, end, intervals, baseline))
    for title in extra:
        found = of_references.get(title)
        cells.append(tag("td", f"{found:,}" if title == "n" and found else number(found), class_="number"))
    return cells


def score_cell(value: float | None, interval: Sequence[float] | None = None) -> Html:
    """A score and its interval."""
    if interval is None:
        return tag("td", number(value), class_="score")
    low, high = interval
    shown = tag("span", f"{number(low)}–{number(high)}", class_="interval")
    return tag("td", number(value), " ", shown, class_="score")


def settings_section(files: Sequence[ScoreFile], settings: Mapping[str, Any]) -> Html:
    """Score files with versions, signatures of metrics, and the settings of the run."""
    packages = list(dict.fromkeys(package for file in files for package in file.versions))
    head = [column(name) for name in ("system", "benchmark", "split", *packages, "file")]
    body = [
        tag(
            "tr",
            tag("th", file.system, scope="row"),
            *(tag("td", text) for text in (BENCHMARKS[file.benchmark][0], file.split)),
            *(tag("td", file.versions.get(package) or "not recorded") for package in packages),
            tag("td", tag("code", shown_path(file.path))),
        )
        for file in files
    ]
    parts = [table("Score files and versions of the packages that computed them", tag("tr", *head), body)]
    signed = signatures(files)
    if signed:
        rows = [
            tag("tr", tag("th", name, scope="row"), tag("td", tag("code", signature))) for name, signature in signed
        ]
        parts.append(table("Signatures of sacreBLEU", tag("tr", column("task"), column("signature")), rows))
    for path, content in settings.items():
        parts += [tag("h3", shown_path(path)), shown_settings(content)]
    return tag("section", tag("h2", "Settings", id="settings"), *parts, class_="settings")


def signatures(files: Iterable[ScoreFile]) -> list[tuple[str, str]]:
    """The tasks with signatures of metrics, each with its different ones."""
    found = [
        (name, scores["signature"])
        for file in files
        for name, entry in file.tasks.items()
        for scores in entry["languages"].values()
        if isinstance(scores.get("signature"), str)
    ]
    return list(dict.fromkeys(found))


def read_settings(path: str) -> dict[str, Any]:
    """A YAML file of settings, or a JSON file, such as the `step.json` of a step of an experiment.

    Raises `UserError` unless it holds a mapping.
    """
    if Path(path).suffix == ".json":
        return read_json_object(path)
    text = "\n".join(read_lines(path))
    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected a mapping of settings, found {quoted(content)}")
    return content


def shown_path(path: str) -> str:
    """A path as it is given, or from the current folder on."""
    absolute, here = Path(path).absolute(), Path.cwd()
    return str(absolute.relative_to(here)) if here in absolute.parents else path


def shown_settings(content: Mapping[Any, Any]) -> Html:
    """The commands of a step of an experiment, or a table of settings."""
    commands = content.get("commands")
    if isinstance(commands, list) and all(isinstance(command, list) for command in commands):
        return tag("pre", tag("code", "\n".join(shlex.join(map(str, command)) for command in commands)))
    rows = [tag("tr", tag("th", key, scope="row"), tag("td", value)) for key, value in flat(content)]
    return table("Settings", tag("tr", column("setting"), column("value")), rows)


def flat(content: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Nested mappings as (dotted key, value)."""
    if isinstance(content, dict) and content:
        return [row for key, value in content.items() for row in flat(value, f"{prefix}.{key}" if prefix else str(key))]
    return [(prefix, content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, default=str))]
