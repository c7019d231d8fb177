"""The manifest of a data folder, which `python -m preprocess` writes: reading it, and comparing files with it.

Commands that add files ``NAME.*`` to a data folder write a note beside them, ``NAME.json``, with ``fingerprints``.
"""

import functools
import json
from pathlib import Path
from typing import Any

from fairseq_xl.errors import UserError
from fairseq_xl.io.files import check_format, read_json, read_whole
from fairseq_xl.io.fingerprints import sampled


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """``manifest.json`` of a data folder, {} if it is missing; `UserError` if it is damaged or has another format."""
    path = Path(folder) / "manifest.json"
    try:
        state = path.stat()
        return _read(path, (state.st_size, state.st_mtime_ns, state.st_ino))
    except FileNotFoundError:
        return {}


@functools.lru_cache(maxsize=16)
def _read(path: Path, state: tuple[int, int, int]) -> dict[str, Any]:
    """The manifest in the file `path`, cached until its `state` (size, time, inode) changes."""
    try:
        manifest = json.loads(read_whole(path).decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged: {error}; `python -m preprocess` writes it again") from error
    types = dict.fromkeys(("dictionary", "config", "fingerprints", "vocabulary", "versions"), dict) | {"shards": list}
    if not isinstance(manifest, dict) or not all(
        isinstance(manifest.get(part, expected()), expected) for part, expected in types.items()
    ):
        raise UserError(f"{path} is not a manifest of `python -m preprocess`, which writes it again")
    check_format("data folder", manifest, path)
    return manifest


def notes(folder: str | Path) -> dict[Path, dict[str, Any]]:
    """The fingerprints in the notes of a data folder's subfolders: {note: {file name: fingerprint}}."""
    paths = [path for path in sorted(Path(folder).glob("[!.]*/*.json")) if path.name != "manifest.json"]
    contents = {path: note for path in paths if (note := read_note(path))}
    return {path: note["fingerprints"] for path, note in contents.items()}


def read_note(path: Path) -> dict[str, Any] | None:
    """The note in the file `path`, None for another file or a damaged one; `UserError` for another format."""
    note = read_json(path)
    if not isinstance(note, dict) or not isinstance(note.get("fingerprints"), dict):
        return None
    check_format("note of added files", note, path)
    return note


def _note_of(path: Path) -> tuple[Path, Any] | None:
    """The note with a fingerprint of the file `path`, and the fingerprint; None without a note."""
    prefixes = (path.with_suffix(""), path.with_suffix("").with_suffix(""))
    for note in (prefix.with_name(f"{prefix.name}.json") for prefix in prefixes):
        content = read_note(note)
        if content and path.name in content["fingerprints"]:
            return note, content["fingerprints"][path.name]
    return None


def stored_fingerprint(folder: str | Path, name: str, *counts: str) -> dict[str, Any] | None:
    """The fingerprint of a file of a data folder in its manifest, or in the note of a command that wrote the file.

    Returns: the fingerprint; None for a file that neither names. Raises `UserError` if it lacks one of `counts`.
    """
    origin, fingerprint = Path(folder) / "manifest.json", read_manifest(folder).get("fingerprints", {}).get(name)
    if fingerprint is None and (note := _note_of(Path(folder) / name)):
        origin, fingerprint = note
    if fingerprint is not None and not (
        isinstance(fingerprint, dict) and fingerprint.keys() >= {"bytes", "sampled", *counts}
    ):
        raise UserError(f"{origin} is damaged: its fingerprint of {name} is incomplete")
    return fingerprint


def check_fingerprint(folder: str | Path, name: str, **counts: int) -> None:
    """Raises `UserError` if a file of a data folder differs from its fingerprint in the manifest.

    Its size, its `counts` and its content are compared: all of a file of up to 1 MiB, evenly spaced samples of a larger
    one, so that a change of more than 1/255 of the file is always found and a shorter one may be missed.
    """
    expected = stored_fingerprint(folder, name, *counts)
    if expected is None:
        return
    path = Path(folder) / name
    actual = {**counts, "bytes": path.stat().st_size}
    diffs = [f"{actual[key]} {key}, expected {expected[key]}" for key in actual if actual[key] != expected[key]]
    if not diffs and sampled(path) != expected["sampled"]:
        diffs = ["other content"]
    if diffs:
        raise UserError(
            f"{path} is not the file that {writer(path)} wrote, it has {diffs[0]}: restore it, or remove this one and "
            f"run the same {writer(path)} again (`python -m preprocess --verify {folder}` lists all changes)"
        )


def writer(path: Path) -> str:
    """The command that writes a file of a data folder, for messages."""
    if path.name.startswith("back-"):
        return "`fairseq-xl back-translate`"
    return "`fairseq-xl mine-negatives`" if ".negatives." in path.name else "`python -m preprocess`"
