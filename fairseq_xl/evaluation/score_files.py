"""Score files of `fairseq-xl score xglue` and `fairseq-xl score xtreme`: read, checked and comparable."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fairseq_xl.errors import LARGEST, UserError, quoted
from fairseq_xl.evaluation import xglue, xtreme
from fairseq_xl.evaluation.benchmarks import Task
from fairseq_xl.evaluation.bleu import read_lines

TASKS = {"xglue": xglue.tasks(), "xtreme": xtreme.tasks()}
GROUPS = {"xglue": xglue.GROUPS, "xtreme": xtreme.GROUPS}
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


def read_score_files(arguments: Iterable[str]) -> list[ScoreFile]:
    """Reads files given as NAME=FILE, or as FILE for the system `ours`.

    Raises `UserError` for a file of another kind, for two files of a system and a benchmark, and for files of a
    benchmark that have scores of different splits or references.
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
    text = "\n".join(read_lines(path))
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{path} is not JSON: line {error.lineno}, column {error.colno}: {error.msg}") from None
    except (ValueError, RecursionError):  # a number of thousands of digits, or thousands of lists in each other
        raise UserError(f"{path} is not JSON that can be read: a number is too long or the nesting too deep") from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected one JSON object, found {quoted(content)}")
    return content


def read_score_file(path: str, system: str) -> ScoreFile:
    """Reads and checks a score file; raises `UserError` that names the first wrong key."""
    content = read_json_object(path)
    benchmark = content.get("benchmark")
    if not isinstance(benchmark, str) or benchmark not in TASKS:
        expected = " or ".join(f"`fairseq-xl score {name}`" for name in TASKS)
        raise UserError(f"{path} is not a score file of {expected}: its benchmark is {quoted(benchmark)}")
    versions = {name: found if isinstance(found, str) else None for name, found in object_at(content, "versions", path)}
    tasks = dict(object_at(content, "tasks", path))
    for name, entry in tasks.items():
        if name not in TASKS[benchmark]:
            raise UserError(f"{path}: {quoted(name)} is none of {benchmark}'s tasks {', '.join(TASKS[benchmark])}")
        check_entry(entry, TASKS[benchmark][name], f"tasks.{name}", path)
    averages = {name: checked(content[name], float, name, path) for name in GROUPS[benchmark] if name in content}
    for group in averages:
        without = [name for name in GROUPS[benchmark][group] if "average" not in tasks.get(name, {})]
        if without:
            raise UserError(f"{path}: {group}: an average without {', '.join(without)}")
    split = checked(content.get("split"), str, "split", path)
    return ScoreFile(system, path, benchmark, split, versions, tasks, averages)


def check_entry(entry: Any, task: Task, where: str, path: str) -> None:
    """Raises `UserError` unless an entry of `tasks` has what the page shows."""
    checked(entry, dict, where, path)
    checked(entry.get("metric"), str, f"{where}.metric", path)
    for name, figure in checked(entry.get("paper", {}), dict, f"{where}.paper", path).items():
        checked(figure, float, f"{where}.paper.{name}", path)
    languages = checked(entry.get("languages"), dict, f"{where}.languages", path)
    missing = [language for language in task.languages if language not in languages]
    if entry.get("missing") != missing:
        expected, found = quoted(missing), quoted(entry.get("missing"))
        raise UserError(f"{path} is not a complete score file: {where}.missing: expected {expected}, found {found}")
    if missing and "average" in entry:
        raise UserError(f"{path}: {where}: an average without {', '.join(missing)}")
    for name in () if missing else ("average", *task.metrics):
        checked(entry.get(name), float, f"{where}.{name}", path)
    for language, scores in languages.items():
        if language not in (*task.languages, *task.others):
            raise UserError(f"{path}: {where}.languages: {quoted(language)} is none of the task's languages")
        place = f"{where}.languages.{language}"
        checked(scores, dict, place, path)
        numbers = {"n", *task.metrics} | {name for name in OF_REFERENCES if name in scores}
        for name in sorted(numbers):
            checked(scores.get(name), float, f"{place}.{name}", path)
        for name in task.metrics:
            bounds = checked(scores.get(f"{name}_interval"), list, f"{place}.{name}_interval", path)
            if len(bounds) != 2:
                raise UserError(f"{path}: {place}.{name}_interval: expected two numbers, found {quoted(bounds)}")
            for bound in bounds:
                checked(bound, float, f"{place}.{name}_interval", path)


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
    """The items of an object that is not empty."""
    found = checked(content.get(key), dict, key, path)
    if not found:
        raise UserError(f"{path}: {key} is empty")
    return found.items()


def check_comparable(one: ScoreFile, two: ScoreFile) -> None:
    """Raises `UserError` for files of the same system, and of different splits or references."""
    if one.system == two.system:
        raise UserError(
            f"{one.path} and {two.path} are both scores of {two.system!r} on {two.benchmark}: give one of them another "
            "name, NAME=FILE"
        )
    if one.split != two.split:
        raise UserError(f"{one.path} has scores of the split {one.split!r}, {two.path} of {two.split!r}")
    for name in one.tasks.keys() & two.tasks.keys():
        here, there = one.tasks[name]["languages"], two.tasks[name]["languages"]
        for language in here.keys() & there.keys():
            for key in OF_REFERENCES:
                values = [scores[language].get(key) for scores in (here, there)]
                if None not in values and values[0] != values[1]:
                    raise UserError(
                        f"{one.path} and {two.path} have scores of different references: {key} of {name} in {language} "
                        f"is {values[0]} and {values[1]}"
                    )
