"""Score files of `fairseq-xl score xglue` and `fairseq-xl score xtreme`: read, checked and comparable."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fairseq_xl.errors import UserError, quoted
from fairseq_xl.evaluation import xglue, xtreme
from fairseq_xl.evaluation.benchmarks import Task
from fairseq_xl.evaluation.published_scores import Papers
from fairseq_xl.io.bounds import LARGEST
from fairseq_xl.io.files import parsed_json
from fairseq_xl.io.format_numbers import check_format
from fairseq_xl.io.lines import read_lines

BENCHMARKS = {benchmark.name: benchmark for benchmark in (xglue.BENCHMARK, xtreme.BENCHMARK)}
#: a metric -> the baseline of the same unit that score files may have beside it
BASELINES = {"accuracy": "majority", "ndcg": "chance"}
REFERENCE_KEYS = ("n", "words", "majority", "chance")  # these depend on the references alone
KINDS: dict[type, str] = {dict: "an object", list: "a list", str: "a string", float: "a number"}


@dataclass(frozen=True)
class ScoreFile:
    """The scores of a system on the tasks of a benchmark."""

    system: str
    path: str
    benchmark: str
    split: str
    versions: dict[str, str | None]
    tasks: dict[str, dict[str, Any]]  # task -> entry of the file
    averages: dict[str, float]  # group of tasks -> average
    papers: dict[str, Papers]  # group of tasks -> published averages


def read_score_files(arguments: Iterable[str]) -> list[ScoreFile]:
    """Reads files given as NAME=FILE, or as FILE for the system `ours`.

    Raises `UserError` for a file of another kind, for two files of a system and a benchmark, and for files of a
    benchmark that have scores of different splits, variants or references.
    """
    files: list[ScoreFile] = []
    for argument in arguments:
        system, separator, path = argument.partition("=")
        if not separator:
            system, path = "ours", argument
        if not system or not path:
            raise UserError(f"{argument}: expected NAME=FILE or FILE")
        file = read_score_file(path, system)
        for earlier in files:
            if earlier.benchmark == file.benchmark:
                check_comparable(earlier, file)
        files.append(file)
    return files


def read_json_object(path: str) -> dict[str, Any]:
    """A JSON object; raises `UserError` for anything else."""
    content = parsed_json("\n".join(read_lines(path)), path)
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected one JSON object, found {quoted(content)}")
    return content


def read_score_file(path: str, system: str) -> ScoreFile:
    """Reads and checks a score file; raises `UserError` that names the first wrong key."""
    content = read_json_object(path)
    name = content.get("benchmark")
    if not isinstance(name, str) or name not in BENCHMARKS:
        expected = " or ".join(f"`fairseq-xl score {benchmark}`" for benchmark in BENCHMARKS)
        raise UserError(f"{path} is not a score file of {expected}: its benchmark is {quoted(name)}")
    check_format("score file", content, path)
    benchmark = BENCHMARKS[name]
    versions = {k: v if isinstance(v, str) else None for k, v in object_items(content, "versions", path)}
    tasks = dict(object_items(content, "tasks", path))
    for task, entry in tasks.items():
        if task not in benchmark.tasks:
            raise UserError(f"{path}: {quoted(task)} is not one of {name}'s tasks {', '.join(benchmark.tasks)}")
        check_entry(entry, benchmark.tasks[task], f"tasks.{task}", path)
    averages = {name: check_value(content[name], float, name, path) for name in benchmark.groups if name in content}
    for group in averages:
        for task in benchmark.groups[group]:
            if "average" not in tasks.get(task, {}):
                raise UserError(f"{path}: it has {group}, an average over tasks, but no average of {task}")
            if tasks[task]["variant"] != benchmark.tasks[task].official:
                variant = tasks[task]["variant"]
                raise UserError(f"{path}: it has {group}, an average over tasks, but {task} has the variant {variant}")
    papers = check_value(content.get("paper"), dict, "paper", path)
    for group, figures in papers.items():
        check_papers(figures, f"paper.{group}", path)
    split = check_value(content.get("split"), str, "split", path)
    return ScoreFile(system, path, name, split, versions, tasks, averages, papers)


def check_entry(entry: Any, task: Task, where: str, path: str) -> None:
    """Raises `UserError` unless an entry of `tasks` is complete."""
    check_value(entry, dict, where, path)
    for key in ("metric", "signature", "variant"):
        check_value(entry.get(key), str, f"{where}.{key}", path)
    if entry["variant"] not in task.variants:
        expected = ", ".join(task.variants)
        raise UserError(f"{path}: {where}.variant: {quoted(entry['variant'])} is not one of {expected}")
    metrics = task.variants[entry["variant"]].metrics
    check_papers(entry.get("paper", {}), f"{where}.paper", path)
    languages = check_value(entry.get("languages"), dict, f"{where}.languages", path)
    missing = [language for language in task.languages if language not in languages]
    if entry.get("missing") != missing:
        expected, actual = quoted(missing), quoted(entry.get("missing"))
        raise UserError(f"{path} is not a complete score file: {where}.missing: expected {expected}, found {actual}")
    if missing and "average" in entry:
        raise UserError(f"{path}: {where}: an average without {', '.join(missing)}")
    for name in () if missing else ("average", *metrics):
        check_value(entry.get(name), float, f"{where}.{name}", path)
    for language, scores in languages.items():
        if language not in (*task.languages, *task.extra_languages):
            raise UserError(f"{path}: {where}.languages: {quoted(language)} is not one of the task's languages")
        check_scores(scores, metrics, f"{where}.languages.{language}", path)


def check_scores(scores: Any, metrics: Iterable[str], where: str, path: str) -> None:
    """Raises `UserError` unless the scores of a language have numbers and intervals."""
    check_value(scores, dict, where, path)
    names = {"n", *metrics} | {name for name in REFERENCE_KEYS if name in scores}
    for name in sorted(names):
        check_value(scores.get(name), float, f"{where}.{name}", path)
    for name in metrics:
        bounds = check_value(scores.get(f"{name}_interval"), list, f"{where}.{name}_interval", path)
        if len(bounds) != 2:
            raise UserError(f"{path}: {where}.{name}_interval: expected two numbers, found {quoted(bounds)}")
        for bound in bounds:
            check_value(bound, float, f"{where}.{name}_interval", path)


def check_papers(papers: Any, where: str, path: str) -> None:
    """Raises `UserError` unless published figures are as `fairseq_xl.evaluation.published_scores` has them."""
    for system, figures in check_value(papers, dict, where, path).items():
        key = f"{where}.{system}"
        check_value(figures, dict, key, path)
        check_value(figures.get("source"), str, f"{key}.source", path)
        check_value(figures.get("note", ""), str, f"{key}.note", path)
        for name in ("average", *(name for name in ("f1", "exact_match") if name in figures)):
            check_value(figures.get(name), float, f"{key}.{name}", path)
        for language, figure in check_value(figures.get("languages", {}), dict, f"{key}.languages", path).items():
            check_value(figure, float, f"{key}.languages.{language}", path)


def check_value(value: Any, kind: type, where: str, path: str) -> Any:
    """Returns a value of a `kind` of `KINDS`; a number is finite. Raises `UserError` for another value."""
    if kind is float:
        is_right = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST
    else:
        is_right = isinstance(value, kind)
    if not is_right:
        raise UserError(f"{path} is not a complete score file: {where}: expected {KINDS[kind]}, found {quoted(value)}")
    return value


def object_items(content: dict[str, Any], key: str, path: str) -> Iterable[tuple[str, Any]]:
    """Returns the items of the object at `key`; raises `UserError` if it is empty."""
    value = check_value(content.get(key), dict, key, path)
    if not value:
        raise UserError(f"{path}: {key} is empty")
    return value.items()


def check_comparable(first: ScoreFile, second: ScoreFile) -> None:
    """Raises `UserError` for files of the same system, and of different splits, variants or references."""
    path, other = first.path, second.path
    if first.system == second.system:
        raise UserError(
            f"{path} and {other} are both scores of {first.system!r} on {first.benchmark}: give one of them another "
            "name, NAME=FILE"
        )
    if first.split != second.split:
        raise UserError(f"{path} has scores of the split {first.split!r}, {other} of {second.split!r}")
    for name in first.tasks.keys() & second.tasks.keys():
        variants = [file.tasks[name]["variant"] for file in (first, second)]
        if variants[0] != variants[1]:
            raise UserError(
                f"{path} has {name} scored by the variant {variants[0]}, {other} by {variants[1]}: scores of different "
                "variants are not compared"
            )
        first_languages, second_languages = first.tasks[name]["languages"], second.tasks[name]["languages"]
        for language in first_languages.keys() & second_languages.keys():
            for key in REFERENCE_KEYS:
                values = [scores[language].get(key) for scores in (first_languages, second_languages)]
                if None not in values and values[0] != values[1]:
                    raise UserError(
                        f"{path} and {other} have scores of different references: {key} of {name} in {language} is "
                        f"{values[0]} and {values[1]}"
                    )
