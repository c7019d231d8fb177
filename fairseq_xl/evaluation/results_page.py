"""A page of results: tables and bar charts of score files, by task and by language."""

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fairseq_xl.errors import UserError, quoted
from fairseq_xl.evaluation.benchmarks import Variant, first_paper
from fairseq_xl.evaluation.page_parts import (
    NONE,
    Html,
    axis,
    axis_end,
    chart,
    column,
    document,
    for_each,
    joined,
    key,
    lines,
    number,
    system_columns,
    table,
    tag,
)
from fairseq_xl.evaluation.published import Papers
from fairseq_xl.evaluation.score_files import BASELINES, BENCHMARKS, ScoreFile, read_json_object
from fairseq_xl.io.yaml_files import load

METRICS = {"f1": "F1", "ndcg": "nDCG", "bleu": "BLEU", "exact_match": "exact match"}
NAMES = {"xglue": "XGLUE", "xtreme": "XTREME"}
MARK = "*"  # of published figures that have a note
PUBLISHED_SPLIT = "test"  # published figures are of the test sets


def page(files: Sequence[ScoreFile], settings: Mapping[str, Any], title: str, note: str = "") -> str:
    """Returns the results page as HTML.

    Args:
        files: scores, in the order of the systems.
        settings: {path: content of a settings file}.
        title, note: heading, and a text below it.
    """
    systems = list(dict.fromkeys(file.system for file in files))
    sections, anchors = [], {}
    for benchmark, shown in NAMES.items():
        found = {file.system: file for file in files if file.benchmark == benchmark}
        if found:
            names = [name for name in BENCHMARKS[benchmark].tasks if any(name in file.tasks for file in found.values())]
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
    split = next(iter(found.values())).split
    papers = published(benchmark, names, found)
    sources = list(dict.fromkeys(figures["source"] for of_row in papers.values() for figures in of_row.values()))
    text = f"Split {split}. Scores are percentages. A task's average is the mean over its languages and is left out if "
    text += f"one is missing. Published averages: {', '.join(sources)}." if sources else "one is missing."
    if sources and split != PUBLISHED_SPLIT:
        text += " They are of the test sets, so no difference from them is given."
    metrics = {metric for entry in entries(names, found) for metric in variant_of(benchmark, *entry).metrics}
    return tag(
        "section",
        tag("h2", NAMES[benchmark], id=benchmark),
        tag("p", text),
        overview(benchmark, names, found, systems),
        key("paper"),
        *notes(papers),
        *absent(benchmark, found),
        tag(
            "p",
            "Scores by language have a 95 % bootstrap interval over the examples, which does not include the "
            "variation between training seeds.",
        ),
        key("interval", *(baseline for metric, baseline in BASELINES.items() if metric in metrics)),
        tag("div", *(task_section(benchmark, name, found, systems) for name in names), class_="tasks"),
    )


def absent(benchmark: str, found: Mapping[str, ScoreFile]) -> Iterable[Html]:
    """Paragraphs: the tasks without an average, and those with another variant than the benchmark's."""
    tasks = BENCHMARKS[benchmark].tasks
    for system, file in found.items():
        without = [name for name in tasks if "average" not in file.tasks.get(name, {})]
        others = [name for name, entry in file.tasks.items() if entry["variant"] != tasks[name].official]
        shown = {"No average of": without, "Not scored as the benchmark does, and in no average over tasks:": others}
        for text, names in shown.items():
            if names:
                named = f"{system}: {text[0].lower()}{text[1:]}" if len(found) > 1 else text
                yield tag("p", f"{named} {', '.join(names)}.", class_="quiet")


def published(benchmark: str, names: Iterable[str], found: Mapping[str, ScoreFile]) -> dict[str, Papers]:
    """Published averages of the table of averages, of the main paper: {task or group: {system: figures}}."""
    rows = {name: first_paper(paper_of(name, found)) for name in names}
    groups = {group: of_split(file.split, figures) for file in found.values() for group, figures in file.papers.items()}
    return rows | {group: groups.get(group, {}) for group in groups_of(benchmark, found)}


def groups_of(benchmark: str, found: Mapping[str, ScoreFile]) -> list[str]:
    """The groups of tasks of which a system has an average."""
    return [group for group in BENCHMARKS[benchmark].groups if any(group in file.averages for file in found.values())]


def notes(papers: Mapping[str, Papers]) -> list[Html]:
    """A line for each note of published figures, with the rows and systems that have it."""
    of_note: dict[str, list[tuple[str, str]]] = {}
    for row, found in papers.items():
        for system, figures in found.items():
            if figures.get("note"):
                of_note.setdefault(figures["note"], []).append((row, system))
    shown = []
    for note, places in of_note.items():
        rows, systems = (list(dict.fromkeys(names)) for names in zip(*places))
        shown.append(tag("p", f"{MARK} {', '.join(rows)} of {' and '.join(systems)}: {note}.", class_="quiet"))
    return shown


def entries(names: Iterable[str], found: Mapping[str, ScoreFile]) -> list[tuple[str, Mapping[str, Any]]]:
    """The entries of tasks in score files, with the names of the tasks."""
    return [(name, file.tasks[name]) for name in names for file in found.values() if name in file.tasks]


def variant_of(benchmark: str, name: str, entry: Mapping[str, Any]) -> Variant:
    """The variant of the scores of a task."""
    return BENCHMARKS[benchmark].tasks[name].variants[entry["variant"]]


def overview(benchmark: str, names: list[str], found: Mapping[str, ScoreFile], systems: list[str]) -> Html:
    """A table: task × averages of the systems, published ones, their differences, languages and metric."""
    papers = published(benchmark, names, found)
    minus = [f"{system} minus paper" if len(found) > 1 else "minus paper" for system in found]
    head = tag(
        "tr",
        column("task"),
        *system_columns(found, systems, "number"),
        axis(100),
        column("paper", class_="number"),
        *(column(text, class_="number") for text in minus),
        column("languages"),
        column("metric"),
    )
    rows = [overview_row(benchmark, name, found, systems, papers[name]) for name in names]
    for group in groups_of(benchmark, found):
        averages = {system: file.averages.get(group) for system, file in found.items()}
        cells = average_cells(averages, systems, papers[group])
        members = len(BENCHMARKS[benchmark].groups[group])
        cells += [tag("td", NONE), tag("td", f"mean of {members} tasks", class_="metric quiet")]
        rows.append(tag("tr", tag("th", group, scope="row"), *cells, class_="total"))
    return table("Average of each task", head, rows)


def overview_row(benchmark: str, name: str, found: Mapping[str, ScoreFile], systems: list[str], papers: Papers) -> Html:
    """A task in the table of averages."""
    entries = {system: file.tasks[name] for system, file in found.items() if name in file.tasks}
    averages = {system: entries.get(system, {}).get("average") for system in found}
    others = BENCHMARKS[benchmark].tasks[name].others
    scored = {system: scored_languages(entry, others) for system, entry in entries.items()}
    cells = average_cells(averages, systems, papers)
    cells.append(tag("td", *for_each(scored), class_="languages"))
    cells.append(tag("td", next(iter(entries.values()))["metric"], class_="metric quiet"))
    return tag("tr", tag("th", tag("a", name, href=f"#{benchmark}-{name}"), scope="row"), *cells)


def average_cells(averages: Mapping[str, float | None], systems: list[str], papers: Papers) -> list[Html]:
    """Cells of a row of averages: the systems' averages, their chart, published averages, differences."""
    cells = [tag("td", number(value), class_="number") for value in averages.values()]
    cells.append(chart(averages, systems, papers=[figures["average"] for figures in papers.values()]))
    shown = [f"{system} {number(figures['average'])}{marked(figures)}" for system, figures in papers.items()]
    cells.append(tag("td", *lines(shown or [NONE]), class_="number"))
    for value in averages.values():
        differences = [difference(value, figures) for figures in papers.values()]
        cells.append(tag("td", *lines(differences or [NONE]), class_="number"))
    return cells


def of_split(split: str, papers: Papers) -> Papers:
    """Published figures, not comparable with scores of another split than theirs."""
    if split == PUBLISHED_SPLIT:
        return papers
    return {paper: {**figures, "comparable": False, "other_split": True} for paper, figures in papers.items()}


def marked(figures: Mapping[str, Any]) -> str:
    """The mark of published figures that have a note."""
    return MARK if figures.get("note") else ""


def difference(value: float | None, figures: Mapping[str, Any]) -> str:
    """A score minus the published average, if they can be compared."""
    known = value is not None and figures["average"] is not None and figures.get("comparable", True)
    return number(value - figures["average"], "+") if known else NONE


def paper_of(name: str, found: Mapping[str, ScoreFile]) -> Papers:
    """Published figures of a task in score files."""
    papers = [of_split(file.split, file.tasks[name].get("paper", {})) for file in found.values() if name in file.tasks]
    return {paper: figures for of_file in papers for paper, figures in of_file.items()}


def scored_languages(entry: Mapping[str, Any], others: Iterable[str]) -> str:
    """Counts the averaged languages (all but `others`) with scores and names the others: ``3 of 4, missing nl``."""
    missing, scored = entry["missing"], entry["languages"].keys() - set(others)
    text = f"{len(scored)} of {len(scored) + len(missing)}"
    return f"{text}, missing {', '.join(missing)}" if missing else text


def task_section(benchmark: str, name: str, found: Mapping[str, ScoreFile], systems: list[str]) -> Html:
    """A task: for each metric a table language × system."""
    task = BENCHMARKS[benchmark].tasks[name]
    entries = {system: file.tasks[name] for system, file in found.items() if name in file.tasks}
    metrics = variant_of(benchmark, name, next(iter(entries.values()))).metrics
    papers = paper_of(name, found)
    tables = [by_language(name, task.others, metric, entries, systems, papers) for metric in metrics]
    if papers != first_paper(papers) or any("f1" in figures for figures in papers.values()):
        tables += [published_table(name, metrics, entries, papers), *notes({name: papers})]
    wide = any("languages" in figures for figures in papers.values())  # columns of the papers
    return tag("section", tag("h3", name, id=f"{benchmark}-{name}"), *tables, class_="wide" if wide else None)


def published_table(name: str, metrics: tuple[str, ...], entries: Mapping[str, Any], papers: Papers) -> Html:
    """A table: published system × score, its metrics if it is their mean, and the differences from it."""
    parts = metrics if len(metrics) > 1 else ()
    minus = [f"{system} minus paper" if len(entries) > 1 else "minus paper" for system in entries]
    titles = ["score", *(METRICS.get(part, part) for part in parts), *minus]
    rows = []
    for system, figures in papers.items():
        shown = [number(figures["average"]) + marked(figures), *(number(figures.get(part)) for part in parts)]
        shown += [difference(entry.get("average"), figures) for entry in entries.values()]
        cells = [
            tag("td", figures["source"], class_="source quiet"),
            *(tag("td", text, class_="number") for text in shown),
        ]
        rows.append(tag("tr", tag("th", system, scope="row"), *cells))
    head = [column("system"), column("source"), *(column(title, class_="number") for title in titles)]
    return table("Published averages", tag("tr", *head), rows, name)


def by_language(
    name: str, others: Iterable[str], metric: str, entries: Mapping[str, Any], systems: list[str], papers: Papers
) -> Html:
    """A table: language × score of each system with its interval, in numbers and as bars with whiskers.

    Args:
        others: languages that are not averaged.
        entries: the task's entries in the systems' score files.
        papers: published figures; figures by language are shown.
    """
    codes = sorted({code for entry in entries.values() for code in (*entry["languages"], *entry["missing"])})
    scores = {code: {system: entry["languages"].get(code) for system, entry in entries.items()} for code in codes}
    known = [found for of_code in scores.values() for found in of_code.values() if found]
    end = axis_end(found[f"{metric}_interval"][1] for found in known)
    counts = {found["n"] for found in known}
    extra = [BASELINES[metric]] if any(BASELINES.get(metric) in found for found in known) else []
    extra += ["n"] if len(counts) > 1 else []
    of_papers = {system: figures for system, figures in papers.items() if "languages" in figures}
    rows = []
    for code, of_code in scores.items():
        label = f"{code} (not averaged)" if code in others else code
        figures = [
            {"average": of_paper["languages"].get(code), "comparable": not of_paper.get("other_split")}
            for of_paper in of_papers.values()
        ]
        cells = language_cells(of_code, metric, extra, end, systems, figures)
        rows.append(tag("tr", tag("th", label, scope="row"), *cells))
    means = {system: None if entry["missing"] else entry[metric] for system, entry in entries.items()}
    if any(value is not None for value in means.values()):
        averages = [of_paper["average"] for of_paper in of_papers.values()]
        cells = [*(score_cell(value) for value in means.values()), chart(means, systems, end, papers=averages)]
        cells += [*(tag("td") for _ in extra), *paper_cells(means, of_papers.values())]
        rows.append(tag("tr", tag("th", "average", scope="row"), *cells, class_="total"))
    caption = [next(iter(entries.values()))["metric"]]
    if metric in ("f1", "exact_match") and any("exact_match" in found for found in known):
        caption = [METRICS[metric], f"the score of the task: {caption[0]}"]
    caption += [f"{count:,} examples in each language" for count in counts if len(counts) == 1]
    titles = list(extra)
    for paper in of_papers:
        titles += [f"{paper} (paper)"]
        titles += [f"{system} minus {paper}" if len(entries) > 1 else f"minus {paper}" for system in entries]
    head = [column("language"), *system_columns(entries, systems, "score"), axis(end)]
    head += [column(title, class_="number") for title in titles]
    return table("; ".join(caption), tag("tr", *head), rows, name)


def language_cells(
    scores: Mapping[str, Any],
    metric: str,
    extra: Iterable[str],
    end: float,
    systems: list[str],
    papers: Sequence[Mapping[str, Any]],
) -> list[Html]:
    """The cells of a language: scores of the systems, their chart, what `extra` names, and published scores."""
    values = {system: found and found[metric] for system, found in scores.items()}
    intervals = {system: found and found[f"{metric}_interval"] for system, found in scores.items()}
    of_references = next(filter(None, scores.values()), {})
    baseline = of_references.get(BASELINES.get(metric))
    cells = [score_cell(values[system], intervals[system]) for system in scores]
    shown = [figures["average"] for figures in papers if figures["average"] is not None]
    cells.append(chart(values, systems, end, intervals, baseline, shown))
    for title in extra:
        found = of_references.get(title)
        cells.append(tag("td", f"{found:,}" if title == "n" and found else number(found), class_="number"))
    return cells + paper_cells(values, papers)


def paper_cells(values: Mapping[str, float | None], papers: Iterable[Mapping[str, Any]]) -> list[Html]:
    """Cells of published figures, each with the differences of the systems' scores from it."""
    cells = []
    for figures in papers:
        cells.append(tag("td", number(figures["average"]), class_="number"))
        cells += [tag("td", difference(value, figures), class_="number") for value in values.values()]
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
            *(tag("td", text) for text in (NAMES[file.benchmark], file.split)),
            *(tag("td", file.versions.get(package) or "not recorded") for package in packages),
            tag("td", tag("code", shown_path(file.path))),
        )
        for file in files
    ]
    parts = [table("Score files and versions of the packages that computed them", tag("tr", *head), body)]
    rows = [
        tag("tr", tag("th", name, scope="row"), tag("td", tag("code", signature)))
        for name, signature in signatures(files)
    ]
    parts.append(table("Signatures of the scores", tag("tr", column("task"), column("signature")), rows))
    for path, content in settings.items():
        parts += [tag("h3", shown_path(path)), shown_settings(content)]
    return tag("section", tag("h2", "Settings", id="settings"), *parts, class_="settings")


def signatures(files: Iterable[ScoreFile]) -> list[tuple[str, str]]:
    """The tasks with the signatures of their scores, each with its different ones."""
    found = [(name, entry["signature"]) for file in files for name, entry in file.tasks.items()]
    return list(dict.fromkeys(found))


def read_settings(path: str) -> dict[str, Any]:
    """A YAML file of settings, or a JSON file, such as the `step.json` of a step of an experiment.

    Raises `UserError` unless it holds a mapping.
    """
    if Path(path).suffix == ".json":
        return read_json_object(path)
    content = load(path)
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
        lines = "\n".join(shlex.join(map(str, command)) for command in commands)
        placeholder = [tag("p", "{output} is the output folder of the experiment.")] if "{output}" in lines else []
        return joined([*placeholder, tag("pre", tag("code", lines))])
    rows = [tag("tr", tag("th", key, scope="row"), tag("td", value)) for key, value in flat(content)]
    return table("Settings", tag("tr", column("setting"), column("value")), rows)


def flat(content: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Nested mappings as (dotted key, value)."""
    if isinstance(content, dict) and content:
        return [row for key, value in content.items() for row in flat(value, f"{prefix}.{key}" if prefix else str(key))]
    return [(prefix, content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, default=str))]
