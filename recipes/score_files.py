"""Reads scores from score files, and from JSON files of `results/` that hold several of them."""

import json
import re
from pathlib import Path
from typing import Any

from fairseq_xl.errors import UserError


def read(path: Path) -> Any:
    """Reads a JSON file, or None without one. FILE.json/MODEL/TASK/scores.json is the entry MODEL/TASK of FILE.json."""
    for kept in path.parents:
        if kept.is_file():
            return json.loads(kept.read_text(encoding="utf-8")).get(entry_of(path.relative_to(kept)))
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


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


def value_of(path: Path, key: str, form: str | None) -> str:
    """Formats a number of a score file, for instance as .2f. Raises `UserError` if the file does not have it."""
    found = entries(read(path), key)
    if not found:
        raise UserError(f"{path} has no {key}")
    return format(found[0], (form or "").strip())
