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
from fairseq_xl.io.lines import read_lines

BENCHMARKS = {benchmark.name: benchmark for benchmark in (xglue.BENCHMARK, xtreme.BENCHMARK)}
#: a metric -> the baseline of the same unit that score files may have beside it
BASELINES = {"accuracy": "majority", "ndcg": "chance"}
OF_REFERENCES = ("n", "words", "majority", "chance")  # what depends on the references alone
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
    found: list[ScoreFile] = []
    for argument in arguments:
        system, separator, path = argument.partition("=")
        if not separator:
            system, path = "ours", argument
        if not system or not path:
            raise UserError(f"{argument}: expected NAME=FILE or FILE")
        file = read_score_file(path, system)
        for other in found:
            if other.benchmark == file.benchmark:
                check_comparable(other, file)
        found.append(file)
    return found


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
        expected = " or ".join(f"`fairseq-xl score {known}`" for known in BENCHMARKS)
        raise UserError(f"{path} is not a score file of {expected}: its benchmark is {quoted(name)}")
    benchmark = BENCHMARKS[name]
    versions = {key: found if isinstance(found, str) else None for key, found in object_at(content, "versions", path)}
    tasks = dict(object_at(content, "tasks", path))
    for task, entry in tasks.items():
        if task not in benchmark.tasks:
            raise UserError(f"{path}: {quoted(task)} is not one of {name}'s tasks {', '.join(benchmark.tasks)}")
        check_entry(entry, benchmark.tasks[task], f"tasks.{task}", path)
    averages = {group: checked(content[group], float, group, path) for group in benchmark.groups if group in content}
    for group in averages:
        for task in benchmark.groups[group]:
            if "average" not in tasks.get(task, {}):
                raise UserError(f"{path}: it has {group}, an average over tasks, but no average of {task}")
            if tasks[task]["variant"] != benchmark.tasks[task].official:
                variant = tasks[task]["variant"]
                raise UserError(f"{path}: it has {group}, an average over tasks, but {task} has the variant {variant}")
    papers = checked(content.get("paper"), dict, "paper", path)
    for group, figures in papers.items():
        check_papers(figures, f"paper.{group}", path)
    split = checked(content.get("split"), str, "split", path)
    return ScoreFile(system, path, name, split, versions, tasks, averages, papers)


def check_entry(entry: Any, task: Task, where: str, path: str) -> None:
    """Raises `UserError` unless an entry of `tasks` has what the page shows."""
    checked(entry, dict, where, path)
    for key in ("metric", "signature", "variant"):
        checked(entry.get(key), str, f"{where}.{key}", path)
    if entry["variant"] not in task.variants:
        found, expected = quoted(entry["variant"]), ", ".join(task.variants)
        raise UserError(f"{path}: {where}.variant: {found} is not one of {expected}")
    metrics = task.variants[entry["variant"]].metrics
    check_papers(entry.get("paper", {}), f"{where}.paper", path)
    languages = checked(entry.get("languages"), dict, f"{where}.languages", path)
    missing = [language for language in task.languages if language not in languages]
    if entry.get("missing") != missing:
        expected, found = quoted(missing), quoted(entry.get("missing"))
        raise UserError(f"{path} is not a complete score file: {where}.missing: expected {expected}, found {found}")
    if missing and "average" in entry:
        raise UserError(f"{path}: {where}: an average without {', '.join(missing)}")
    for name in () if missing else ("average", *metrics):
        checked(entry.get(name), float, f"{where}.{name}", path)
    for language, scores in languages.items():
        if language not in (*task.languages, *task.others):
            raise UserError(f"{path}: {where}.languages: {quoted(language)} is not one of the task's languages")
        check_scores(scores, metrics, f"{where}.languages.{language}", path)


def check_scores(scores: Any, metrics: Iterable[str], where: str, path: str) -> None:
    """Raises `UserError` unless the scores of a language have numbers and intervals."""
    checked(scores, dict, where, path)
    numbers = {"n", *metrics} | {name for name in OF_REFERENCES if name in scores}
    for name in sorted(numbers):
        checked(scores.get(name), float, f"{where}.{name}", path)
    for name in metrics:
        bounds = checked(scores.get(f"{name}_interval"), list, f"{where}.{name}_interval", path)
        if len(bounds) != 2:
            raise UserError(f"{path}: {where}.{name}_interval: expected two numbers, found {quoted(bounds)}")
        for bound in bounds:
            checked(bound, float, f"{where}.{name}_interval", path)


def check_papers(papers: Any, where: str, path: str) -> None:
    """Raises `UserError` unless published figures are as `fairseq_xl.evaluation.published_scores` has them."""
    for system, figures in checked(papers, dict, where, path).items():
        place = f"{where}.{system}"
        checked(figures, dict, place, path)
        checked(figures.get("source"), str, f"{place}.source", path)
        checked(figures.get("note", ""), str, f"{place}.note", path)
        for name in ("average", *(name for name in ("f1", "exact_match") if name in figures)):
            checked(figures.get(name), float, f"{place}.{name}", path)
        for language, figure in checked(figures.get("languages", {}), dict, f"{place}.languages", path).items():
            checked(figure, float, f"{place}.languages.{language}", path)


def checked(found: Any, kind: type, where: str, path: str) -> Any:
    """Returns a value of a `kind` of `KINDS`; a number is finite. Raises `UserError` for another value."""
    if kind is float:
        right = isinstance(found, int | float) and not isinstance(found, bool) and abs(found) < LARGEST
    else:
        right = isinstance(found, kind)
    if not right:
        raise UserError(f"{path} is not a complete score file: {where}: expected {KINDS[kind]}, found {quoted(found)}")
    return found


def object_at(content: dict[str, Any], key: str, path: str) -> Iterable[tuple[str, Any]]:
    """Returns the items of the object at `key`; raises `UserError` if it is empty."""
    found = checked(content.get(key), dict, key, path)
    if not found:
        raise UserError(f"{path}: {key} is empty")
    return found.items()


def check_comparable(one: ScoreFile, two: ScoreFile) -> None:
    """Raises `UserError` for files of the same system, and of different splits, variants or references."""
    if one.system == two.system:
        raise UserError(
            f"{one.path} and {two.path} are both scores of {two.system!r} on {two.benchmark}: give one of them another "
            "name, NAME=FILE"
        )
    if one.split != two.split:
        raise UserError(f"{one.path} has scores of the split {one.split!r}, {two.path} of {two.split!r}")
    for name in one.tasks.keys() & two.tasks.keys():
        variants = [file.tasks[name]["variant"] for file in (one, two)]
        if variants[0] != variants[1]:
            raise UserError(
                f"{one.path} has {name} scored by the variant {variants[0]}, {two.path} by {variants[1]}: scores of "
                "different variants are not compared"
            )
        here, there = one.tasks[name]["languages"], two.tasks[name]["languages"]
        for language in here.keys() & there.keys():
            for key in OF_REFERENCES:
                values = [scores[language].get(key) for scores in (here, there)]
                if None not in values and values[0] != values[1]:
                    raise UserError(
                        f"{one.path} and {two.path} have scores of different references: {key} of {name} in {language} "
                        f"is {values[0]} and {values[1]}"
                    )
