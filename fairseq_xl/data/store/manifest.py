"""The data folders that DATA names, their manifests and their texts. Imports neither torch nor fairseq.

DATA is one data folder; several, joined by ``:``; a folder of shards, which `fairseq-xl data prepare` writes for
``shards: N`` (DATA/0, DATA/1, …); or a pattern such as ``DATA/*``. Training reads one of them in each epoch. What all
shards have in common, the dictionary, the sub-words and the validation and test text, is read from the first one.

`fairseq-xl data prepare` writes the manifest of a data folder. Commands that add files ``NAME.*`` to it write a
note beside them, ``NAME.json``, with ``fingerprints``.
"""

import functools
import glob
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fairseq_xl.data.store.plain_folder import located, plain_files
from fairseq_xl.errors import UserError
from fairseq_xl.io.files import check_format, read_json, read_whole
from fairseq_xl.io.fingerprints import sampled, sha256_of


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
        raise UserError(f"{path} is damaged: {error}; `fairseq-xl data prepare` writes it again") from error
    types = dict.fromkeys(("dictionary", "config", "fingerprints", "vocabulary", "versions"), dict) | {"shards": list}
    if not isinstance(manifest, dict) or not all(
        isinstance(manifest.get(part, expected()), expected) for part, expected in types.items()
    ):
        raise UserError(f"{path} is not a manifest of `fairseq-xl data prepare`, which writes it again")
    check_format("data folder", manifest, path)
    return manifest


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
    path = located(Path(folder) / name)
    actual = {**counts, "bytes": path.stat().st_size}
    diffs = [f"{actual[key]} {key}, expected {expected[key]}" for key in actual if actual[key] != expected[key]]
    if not diffs and sampled(path) != expected["sampled"]:
        diffs = ["other content"]
    if diffs and plain_files(folder) and "blocks" not in expected:
        raise UserError(
            f"{path} has changed since {folder}/manifest.json was written, it has {diffs[0]}: restore it, or remove "
            "manifest.json if the text was preprocessed again"
        )
    if diffs:
        raise UserError(
            f"{path} is not the file that {writer(path)} wrote, it has {diffs[0]}: restore it, or remove this one and "
            f"run the same {writer(path)} again (`fairseq-xl data verify {folder}` lists all changes)"
        )


def writer(path: Path) -> str:
    """The command that writes a file of a data folder, for messages."""
    if path.name.startswith("back-"):
        return "`fairseq-xl back-translate`"
    return "`fairseq-xl search negatives`" if ".negatives." in path.name else "`fairseq-xl data prepare`"


def data_folders(data: str | os.PathLike[str]) -> list[Path]:
    """The data folders that DATA names, shards in the order of their numbers: 0, 1, 2, …, 10.

    Raises `UserError` for a pattern without a folder, for incomplete shards, and for a shard that is not the one that
    was written in its place; other folders need not exist.
    """
    folders = [folder for pattern in os.fspath(data).split(os.pathsep) for folder in _matching_folders(pattern)]
    for folder in folders:
        check_shard(folder)
    return folders


def check_shard(folder: Path) -> None:
    """Raises `UserError` for a shard whose manifest has another hash than its parent's manifest says."""
    if "shard" not in read_manifest(folder):
        return
    hashes, name = read_manifest(folder.parent).get("shards"), folder.name
    if hashes is None:  # a shard by itself
        return
    expected = hashes[int(name)] if name.isdecimal() and int(name) < len(hashes) else None
    if expected != sha256_of(folder / "manifest.json"):
        raise UserError(
            f"{folder} is not the shard that {folder.parent / 'manifest.json'} names: restore it, or run the same "
            "`fairseq-xl data prepare` again"
        )


def one_folder(data: str | os.PathLike[str], does: str = "read") -> Path:
    """The only data folder, for a command that reads one training text; `does` is its verb, for messages.

    Raises `UserError` for several, and as `data_folders`.
    """
    folders = data_folders(data)
    if len(folders) > 1:
        raise UserError(f"{data}: {does} one data folder at a time")
    return folders[0]


def _matching_folders(pattern: str) -> list[Path]:
    path = Path(pattern)
    if path.is_dir():
        return _shards_of(path) or _plain_folders(path) or [path]
    if not glob.has_magic(pattern):
        return [path]
    folders = sorted((Path(match) for match in glob.glob(pattern) if os.path.isdir(match)), key=_natural)
    if not folders:
        raise UserError(f"{pattern}: no folder matches")
    if path.name == "*" and not glob.has_magic(str(path.parent)):
        return _shards_of(path.parent) or folders
    return folders


def _shards_of(parent: Path) -> list[Path]:
    """The shards in a folder, in order; [] for a folder that is a data folder itself and for one without shards."""
    numbered = [path for path in parent.iterdir() if path.name.isdecimal() and path.is_dir()]
    if (parent / "dict.txt").is_file() or not numbered:
        return []
    numbered.sort(key=_natural)
    written = [folder for folder in numbered if "shard" in read_manifest(folder)]  # by `fairseq-xl data prepare`
    if not written and not (parent / ".stages").is_dir():
        return numbered
    count = read_manifest(parent).get("config", {}).get("shards")
    if count is None or [path.name for path in written] != [str(i) for i in range(count)]:
        raise UserError(f"{parent}: its shards are not complete: run the same `fairseq-xl data prepare` again")
    return written


def _plain_folders(parent: Path) -> list[Path]:
    """The folders of plain fairseq-preprocess side by side in a folder that is no data folder itself; otherwise []."""
    if plain_files(parent) or any((parent / name).exists() for name in ("dict.txt", "manifest.json", ".stages")):
        return []
    return sorted((path for path in parent.iterdir() if path.is_dir() and plain_files(path)), key=_natural)


def _natural(path: Path) -> list[tuple[str, int]]:
    """Orders names by the numbers in them."""
    return [(text, int(digits or -1)) for text, digits in re.findall(r"(\D*)(\d*)", str(path))]


def folder_of_epoch(data: str, epoch: int) -> Path:
    """The data folder of an epoch: epochs cycle through the folders that `data` joins by ``:``."""
    folders = data.split(os.pathsep)
    return Path(folders[(epoch - 1) % len(folders)])


def is_begun(prefix: str | Path) -> bool:
    """Whether at least one of the two files of a text exists."""
    return any(located(f"{prefix}.{end}").exists() for end in ("bin", "idx"))


def files_of(folder: str | Path, prefixes: Iterable[str]) -> list[Path]:
    """Paths of the two files of each text of a folder, whose names are the prefixes."""
    return [Path(folder) / f"{prefix}.{end}" for prefix in prefixes for end in ("idx", "bin")]


def manifest_tokenizers(manifest: dict) -> dict[str, str]:
    """Returns the tokenizers of a manifest, {language: name}."""
    return manifest.get("config", {}).get("tokenizer", {})
