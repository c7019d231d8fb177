"""Folders of partial results, so that a stopped command continues."""

import shutil
from pathlib import Path
from typing import Any

from fairseq_xl.io.files import read_json, write_json
from fairseq_xl.io.format_numbers import FORMATS, check_format


def note_path(folder: Path) -> Path:
    """Path of the file with the `made_with` of a folder of parts."""
    return folder / "made_with.json"


def begin(folder: Path, made_with: dict[str, Any]) -> None:
    """Makes the folder of parts, and removes parts with another `made_with`.

    `made_with` has everything that the result depends on. Raises `UserError` for parts of another format.
    """
    note, made_with = note_path(folder), {"format": FORMATS["partial results"]} | made_with
    stored = read_json(note)
    if isinstance(stored, dict):
        check_format("partial results", stored, note)
    if stored != made_with:
        if folder.is_dir():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        write_json(note, made_with)
