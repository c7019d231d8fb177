"""Reads scores from score files, and from JSON files of `results/` that hold several of them."""

import functools
import json
import re
from pathlib import Path
from typing import Any

from fairseq_xl.errors import UserError


def read(path: Path) -> Any:
    """Returns the content of a JSON file, or None if it is missing.

    FILE.json/MODEL/TASK/scores.json is the entry MODEL/TASK of FILE.json.
    """
    for kept in path.parents:
        if kept.is_file():
            return read_kept(kept).get(entry_of(path.relative_to(kept)))
    return parsed(path, changed(path)) if path.is_file() else None


def read_kept(path: Path) -> dict[str, Any]:
    """Reads a JSON file of several scores. Raises `UserError` if it is something else."""
    content = parsed(path, changed(path))
    if not isinstance(content, dict):
        raise UserError(f"{path}: this file is not a JSON object of scores")
    return content


def changed(path: Path) -> tuple[int, int]:
    """When a file was changed, and its size."""
    return path.stat().st_mtime_ns, path.stat().st_size


@functools.lru_cache(maxsize=16)
def parsed(path: Path, version: tuple[int, int]) -> Any:
    """The content of a JSON file. A report reads a file of all scores many times; a changed one is read again."""
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


def tokens_of(log: Path) -> dict[str, float]:
    """Sums the tokens of a training's train.log -> {"updates", "tokens"}; {} if no epoch has ended."""
    epochs = {}
    for line in log.read_text(encoding="utf-8").splitlines():
        if '"train_wpb"' in line:  # a later entry replaces that of an epoch which was interrupted
            entry = json.loads(line[line.index("{") :])
            epochs[entry["epoch"]] = int(entry["train_num_updates"]), float(entry["train_wpb"])
    before, tokens = 0, 0.0
    for updates, size in epochs.values():
        before, tokens = updates, tokens + (updates - before) * size
    return {"updates": before, "tokens": tokens} if epochs else {}
