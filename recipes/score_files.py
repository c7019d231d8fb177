"""Reads scores from score files, from train.log, and from JSON files of `results/` with several of them."""

import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairseq_xl.errors import UserError
from recipes.settings import RECORD


def read(path: Path) -> Any:
    """Returns the content of a JSON file, or of a train.log (`training_of`).

    It is None for a missing file, and for the train.log of an unfinished step. FILE.json/MODEL/TASK/scores.json is the
    entry MODEL/TASK of FILE.json.
    """
    for parent in path.parents:
        if parent.is_file():
            return read_saved(parent).get(entry_of(path.relative_to(parent)))
    if not path.is_file() or (path.suffix == ".log" and unfinished(path)):
        return None
    return parsed(path, changed(path))


def unfinished(path: Path) -> bool:
    """Tells whether a file is in the folder of an unfinished step of an experiment."""
    records = (parent / RECORD for parent in path.parents)
    record = next((record for record in records if record.is_file()), None)
    return record is not None and not read_saved(record).get("finished")


def read_saved(path: Path) -> dict[str, Any]:
    """Reads a JSON file of several scores. Raises `UserError` if it is not a JSON object."""
    content = parsed(path, changed(path))
    if not isinstance(content, dict):
        raise UserError(f"{path}: this file is not a JSON object of scores")
    return content


def changed(path: Path) -> tuple[int, int]:
    """Returns the modification time and the size of a file."""
    return path.stat().st_mtime_ns, path.stat().st_size


@functools.lru_cache(maxsize=16)
def parsed(path: Path, version: tuple[int, int]) -> Any:
    """Reads a file; an unchanged `version` is read once, since a report reads a file of all scores many times."""
    if path.suffix == ".log":
        return training_of(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON: {error}") from error


def entry_of(path: Path) -> str:
    """Returns the entry of a score file in a JSON file of scores; the path is relative to the output folder."""
    return re.sub("/(scores|bleu)$", "", path.with_suffix("").as_posix())


def entries(content: Any, key: str) -> list:
    """Lists all values at a dotted key, in which `*` is every key of a mapping. Missing keys have no values."""
    values = [content]
    for part in key.split("."):
        values = [
            value
            for mapping in values
            if isinstance(mapping, dict)
            for value in (mapping.values() if part == "*" else [mapping.get(part)])
            if value is not None
        ]
    return values


def value_of(content: Any, path: Path, key: str, format_spec: str | None) -> str:
    """Formats a number in the content of a score file, for instance as .2f. Raises `UserError` if it is missing."""
    values = entries(content, key)
    if not values:
        raise UserError(f"{path} has no {key}")
    return format(values[0], (format_spec or "").strip())


def training_of(log: Path) -> dict[str, Any]:
    """Reads the train.log of a training; returns totals and the last validation, {} if no epoch has ended.

    Returns:
        updates: number of updates.
        tokens: tokens of the training, without padding.
        clipped: % of the updates with clipped gradients.
        minutes: wall time, summed over restarts; killed processes are not counted.
        losses: losses of the last validation, in bits per predicted token: `loss` of the criterion, which may sum
            several terms; `mlm`, `mlm_de`, … of objectives; `best`, the lowest `loss`, if it selects checkpoints.
    """
    text = log.read_text(encoding="utf-8")
    epochs = {entry["epoch"]: entry for entry in json_entries(text, "train_wpb")}  # the later of an interrupted epoch
    if not epochs:
        return {}
    before, tokens, clipped = 0, 0.0, 0.0
    for entry in epochs.values():
        updates = int(entry["train_num_updates"])
        tokens += (updates - before) * float(entry["train_wpb"])
        clipped += (updates - before) * float(entry.get("train_clip", 0))
        before = updates
    seconds = map(float, re.findall(r"done training in ([\d.]+) seconds", text))
    *_, validation = {}, *json_entries(text, "valid_loss")
    return {
        "updates": before,
        "tokens": tokens,
        "clipped": round(clipped / before, 2),
        "minutes": round(sum(seconds) / 60, 2),
        "losses": losses_of(validation),
    }


def json_entries(text: str, key: str) -> Iterator[dict[str, Any]]:
    """Yields the JSON entries of a log that have a key."""
    for line in text.splitlines():
        if f'"{key}": ' in line:
            yield json.loads(line[line.index("{") :])


def losses_of(entry: dict[str, Any]) -> dict[str, float]:
    """Returns the losses of a validation by name: `loss` of `valid_loss`, and `mlm_de` of `valid_mlm_de_loss`."""
    losses = ((re.fullmatch("valid_(?:(.+)_)?loss", name), value) for name, value in entry.items())
    return {name[1] or "loss": float(value) for name, value in losses if name}
