"""Records of steps: whether the outputs of a step are up to date, and what has changed if they are not.

A record is a JSON object with `made_with`, everything that the outputs depend on: settings, hashes of input files,
versions. Imports neither torch nor fairseq.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from fairseq_xl.errors import quoted
from fairseq_xl.io.files import FORMATS, check_format, read_json, write_json


def difference(before: Any, now: Any, name: str = "") -> str:
    """The first difference between two JSON values, such as ``length: then 128, now 250``; "" for equal ones."""
    if before == now:
        return ""
    if isinstance(before, dict) and isinstance(now, dict):
        key = next(key for key in now | before if before.get(key, ...) != now.get(key, ...))
        return difference(before.get(key), now.get(key), key)
    return f"{name}: then {quoted(before)}, now {quoted(now)}" if name else "it has no record"


def read_record(path: Path, made_with: Any, outputs: dict[str, Any] | None = None) -> tuple[dict[str, Any], str]:
    """The record in a file, {} for a missing or damaged one, and how `made_with` or `outputs` differ from it."""
    record = read_json(path)
    record = record if isinstance(record, dict) else {}
    made_with = json.loads(json.dumps(made_with))  # without tuples, which JSON does not have
    return record, difference(record.get("made_with"), made_with) or difference(record.get("outputs"), outputs)


def parts_record(folder: Path) -> Path:
    """Path of the record of a folder of partial results, from which a stopped command continues."""
    return folder / "made_with.json"


def begin_parts(folder: Path, made_with: dict[str, Any]) -> None:
    """Makes a folder of partial results, and removes those with another `made_with`; `UserError` for another format."""
    record, change = read_record(parts_record(folder), made_with)
    if record:
        check_format("partial results", record, parts_record(folder))
    if change:
        if folder.is_dir():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        write_json(parts_record(folder), {"format": FORMATS["partial results"], "made_with": made_with})
