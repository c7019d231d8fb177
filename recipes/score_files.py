"""Reads scores from score files and train.log, and from JSON files of `results/` that hold several of them."""

import functools
import json
import re
from pathlib import Path
from typing import Any

from fairseq_xl.errors import UserError
from recipes.settings import RECORD
from recipes.training_logs import training_of


def read(path: Path) -> Any:
    """Returns the content of a JSON file, or what `training_of` reads from a train.log.

    None if the file is missing, or is the train.log of an unfinished step.

    FILE.json/MODEL/TASK/scores.json is the entry MODEL/TASK of FILE.json.
    """
    for kept in path.parents:
        if kept.is_file():
            return read_kept(kept).get(entry_of(path.relative_to(kept)))
    if not path.is_file() or (path.suffix == ".log" and unfinished(path)):
        return None
    return parsed(path, changed(path))


def unfinished(path: Path) -> bool:
    """Whether a file is in the folder of a step of an experiment that has begun but is not finished."""
    records = (parent / RECORD for parent in path.parents)
    record = next((record for record in records if record.is_file()), None)
    return record is not None and not read_kept(record).get("finished")


def read_kept(path: Path) -> dict[str, Any]:
    """Reads a JSON file of several scores. Raises `UserError` if it is not a JSON object."""
    content = parsed(path, changed(path))
    if not isinstance(content, dict):
        raise UserError(f"{path}: this file is not a JSON object of scores")
    return content


def changed(path: Path) -> tuple[int, int]:
    """Modification time and size of a file."""
    return path.stat().st_mtime_ns, path.stat().st_size


@functools.lru_cache(maxsize=16)
def parsed(path: Path, version: tuple[int, int]) -> Any:
    """The content of a file. A report reads a file of all scores many times; a changed one is read again."""
    if path.suffix == ".log":
        return training_of(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON: {error}") from error


def entry_of(path: Path) -> str:
    """The entry of a score file in a JSON file of scores; the path is relative to the output folder."""
    return re.sub("/(scores|bleu)$", "", path.with_suffix("").as_posix())


def entries(content: Any, key: str) -> list:
    """All values at a dotted key, in which `*` stands for every key of a mapping. Missing keys have no values."""
    found = [content]
    for part in key.split("."):
        found = [
            value
            for each in found
            if isinstance(each, dict)
            for value in (each.values() if part == "*" else [each.get(part)])
            if value is not None
        ]
    return found


def value_of(content: Any, path: Path, key: str, form: str | None) -> str:
    """Formats a number in the content of a score file, for instance as .2f. Raises `UserError` if it is not there."""
    found = entries(content, key)
    if not found:
        raise UserError(f"{path} has no {key}")
    return format(found[0], (form or "").strip())
