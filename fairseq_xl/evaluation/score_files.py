"""Score files of `fairseq-xl score xglue` and `fairseq-xl score xtreme`: read, checked and comparable."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fairseq_xl.errors import UserError, quoted
from fairseq_xl.evaluation import xglue, xtreme
from fairseq_xl.evaluation.benchmarks import Task
from fairseq_xl.evaluation.paper_figures import Papers
from fairseq_xl.io.bounds import LARGEST
from fairseq_xl.io.files import check_format, parsed_json
from fairseq_xl.io.lines import read_lines

BENCHMARKS = {benchmark.name: benchmark for benchmark in (xglue.BENCHMARK, xtreme.BENCHMARK)}
#: a metric -> the baseline of the same unit that score files may have beside it
BASELINES = {"accuracy": "majority", "ndcg": "chance"}
REFERENCE_KEYS = ("n", "words", "majority", "chance")  # these depend on the references alone
KINDS: dict[type, str] = {dict: "an object", list: "a list", str: "a string", float: "a number"}
#: shape of published figures, as `fairseq_xl.evaluation.benchmarks` has them
PAPERS = {
    "*": {
        **{"source": str, "note?": str, "average": float, "f1?": float, "exact_match?": float},
        "languages?": {"*": float},
    }
}


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

    Raises `UserError` for other files, and for two of a benchmark that are of one system, or not comparable.
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
    for key in ("versions", "tasks"):
        if not check(content.get(key), dict, key, path):
            raise UserError(f"{path}: {key} is empty")
    versions = {key: value if isinstance(value, str) else None for key, value in content["versions"].items()}
    tasks = content["tasks"]
    for task, entry in tasks.items():
        if task not in benchmark.tasks:
            raise UserError(f"{path}: {quoted(task)} is not one of {name}'s tasks {', '.join(benchmark.tasks)}")
        check_entry(entry, benchmark.tasks[task], f"tasks.{task}", path)
    averages = {name: check(content[name], float, name, path) for name in benchmark.groups if name in content}
    for group in averages:
        for task in benchmark.groups[group]:
            if "average" not in tasks.get(task, {}):
                raise UserError(f"{path}: it has {group}, an average over tasks, but no average of {task}")
            if tasks[task]["variant"] != benchmark.tasks[task].official:
                variant = tasks[task]["variant"]
                raise UserError(f"{path}: it has {group}, an average over tasks, but {task} has the variant {variant}")
    papers = check(content.get("paper"), {"*": PAPERS}, "paper", path)
    split = check(content.get("split"), str, "split", path)
    return ScoreFile(system, path, name, split, versions, tasks, averages, papers)


def check_entry(entry: Any, task: Task, where: str, path: str) -> None:
    """Raises `UserError` unless an entry of `tasks` is complete."""
    check(entry, {"metric": str, "signature": str, "variant": str}, where, path)
    if entry["variant"] not in task.variants:
        expected = ", ".join(task.variants)
        raise UserError(f"{path}: {where}.variant: {quoted(entry['variant'])} is not one of {expected}")
    metrics = task.variants[entry["variant"]].metrics
    check(entry, {"paper?": PAPERS, "languages": dict}, where, path)
    languages = entry["languages"]
    missing = [language for language in task.languages if language not in languages]
    if entry.get("missing") != missing:
        expected, actual = quoted(missing), quoted(entry.get("missing"))
        raise UserError(f"{path} is not a complete score file: {where}.missing: expected {expected}, found {actual}")
    if missing and "average" in entry:
        raise UserError(f"{path}: {where}: an average without {', '.join(missing)}")
    check(entry, {} if missing else dict.fromkeys(("average", *metrics), float), where, path)
    shape: dict[str, Any] = {"n": float, **{f"{name}?": float for name in REFERENCE_KEYS[1:]}}
    for name in metrics:
        shape |= {name: float, f"{name}_interval": [float, float]}
    for language, scores in languages.items():
        if language not in (*task.languages, *task.extra_languages):
            raise UserError(f"{path}: {where}.languages: {quoted(language)} is not one of the task's languages")
        check(scores, shape, f"{where}.languages.{language}", path)


def check(value: Any, shape: Any, where: str, path: str) -> Any:
    """Returns a value of a shape; raises `UserError` that names the first wrong part of another value.

    Args:
        shape: a key of `KINDS`, where float is a finite number; [float, float]; or {key: shape}, where a key with ? at
            its end may be missing, and * stands for all keys.
        where: the place of the value in the file.
    """
    kind = type(shape) if isinstance(shape, dict | list) else shape
    is_right = isinstance(value, int | float if kind is float else kind)
    if not is_right or (kind is float and (isinstance(value, bool) or abs(value) >= LARGEST)):
        raise UserError(f"{path} is not a complete score file: {where}: expected {KINDS[kind]}, found {quoted(value)}")
    if isinstance(shape, list):
        if len(value) != len(shape):
            raise UserError(f"{path}: {where}: expected two numbers, found {quoted(value)}")
        for item, item_shape in zip(value, shape):
            check(item, item_shape, where, path)
    for name, part in shape.items() if isinstance(shape, dict) else ():
        key = name.removesuffix("?")
        for present in value if name == "*" else [key] if key == name or key in value else []:
            check(value.get(present), part, f"{where}.{present}", path)
    return value


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
