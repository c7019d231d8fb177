"""The shards that DATA names. Imports neither torch nor fairseq.

DATA is one data folder; several, joined by ``:``; a folder of shards, which `python -m preprocess` writes for
``shards: N`` (DATA/0, DATA/1, …); or a pattern such as ``DATA/*``. Training reads one of them in each epoch. What all
shards have in common, the dictionary, the sub-words and the validation and test text, is read from the first one.
"""

import glob
import os
import re
from pathlib import Path

from fairseq_xl.data.store.manifest import read_manifest
from fairseq_xl.errors import UserError
from fairseq_xl.io.fingerprints import sha256_of


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
            "`python -m preprocess` again"
        )


def first_folder(data: str | os.PathLike[str]) -> Path:
    """The first data folder, for commands that read the files common to all shards. Raises as `data_folders`."""
    return data_folders(data)[0]


def one_folder(data: str | os.PathLike[str], does: str = "read") -> Path:
    """The only data folder, for a command that reads one training text; `does` is its verb, for messages.

    Raises `UserError` for several, and as `data_folders`.
    """
    first, *rest = data_folders(data)
    if rest:
        raise UserError(f"{data}: {does} one data folder at a time")
    return first


def _matching_folders(pattern: str) -> list[Path]:
    path = Path(pattern)
    if path.is_dir():
        return _shards_of(path) or [path]
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
    written = [folder for folder in numbered if "shard" in read_manifest(folder)]  # by `python -m preprocess`
    if not written and not (parent / ".stages").is_dir():
        return numbered
    count = read_manifest(parent).get("config", {}).get("shards")
    if count is None or [path.name for path in written] != [str(i) for i in range(count)]:
        raise UserError(f"{parent}: its shards are not complete: run the same `python -m preprocess` again")
    return written


def _natural(path: Path) -> list[tuple[str, int]]:
    """Orders names by the numbers in them."""
    parts = re.findall(r"(\D*)(\d*)", str(path))
    return [(text, int(digits or -1)) for text, digits in parts]


def folder_of_epoch(data: str, epoch: int) -> Path:
    """The data folder of an epoch: epochs cycle through the folders that `data` joins by ``:``."""
    folders = data.split(os.pathsep)
    return Path(folders[(epoch - 1) % len(folders)])
