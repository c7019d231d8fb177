"""Records the settings of a folder, and refuses a folder with other settings.

    python -m recipes.settings [--may-grow] FOLDER ARGUMENT ...

The content of an argument that is a file or a folder counts, and not its name. Files that a folder gains later do not
count. A FOLDER with nothing but logs may have any settings. With --may-grow the arguments are flags of a training that
may continue with a larger --max-epoch or --max-update, or without the flag.
"""

import itertools
import math
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairseq_xl.errors import UserError
from fairseq_xl.io.files import FORMATS, check_format, read_json, write_json
from fairseq_xl.io.fingerprints import sha256_of
from recipes.entry_point import call

RECORD = "step.json"  # in the folder of a step of an experiment
SETTINGS = "settings.json"  # in the folder of a script
DESCRIPTION = "corpus.yaml"  # in a corpus folder: changes with each language or pair; counts only if it is an argument
LIMITS = ("--max-epoch", "--max-update")  # of a training
Record = dict[str, Any]  # "format"; "commands": lists of arguments; "files": path of a file or folder -> its digest


class Digests:
    """Hashes of files and folders. A file with the same time and size is read only once.

    Args:
        excluded: a folder whose files do not count, such as that of the record.
    """

    def __init__(self, excluded: Path | None = None) -> None:
        self.excluded = excluded and Path(os.path.abspath(excluded))
        self.hashes: dict[tuple[Path, int, int], str] = {}

    def of(self, path: Path) -> str | dict[str, str]:
        """Returns the hash of a file, {name: hash} of the files of a folder, and of a data folder only its manifest's.

        Hidden files, other manifests and `DESCRIPTION`, which describe the other files, and compiled Python do not
        count.
        """
        if path.is_file():
            return self.file_hash(path)
        if (path / "manifest.json").is_file() and (path / "dict.txt").is_file():
            return {"manifest.json": self.file_hash(path / "manifest.json")}
        paths = [file for file in sorted(path.rglob("*")) if file.is_file()]
        paths = [file for file in paths if self.excluded not in Path(os.path.abspath(file)).parents]
        files = {file.relative_to(path).as_posix(): file for file in paths}
        metadata = {
            name for name in files if name.startswith(".") or "/." in name or name.endswith(("manifest.json", ".pyc"))
        } | {DESCRIPTION}
        return {name: self.file_hash(file) for name, file in files.items() if name not in metadata}

    def file_hash(self, path: Path) -> str:
        status = path.stat()
        key = path, status.st_mtime_ns, status.st_size
        if key not in self.hashes:
            self.hashes[key] = sha256_of(path)[:16]
        return self.hashes[key]


def parts(word: str) -> list[str]:
    """Returns parts of an argument that may be paths: `de`, DATA and MODULE of `de=DATA:MODULE`."""
    return re.split("[=:]", word)


def check(folder: Path, name: str, record: Record, otherwise: str) -> Record:
    """Returns the record FOLDER/NAME if it has the same content as `record`, otherwise {}.

    Raises `UserError` if they differ and the folder has results; `otherwise` is the alternative to removing it.
    """
    if not (folder / name).is_file():
        return {}
    before = read_json(folder / name)
    before = before if isinstance(before, dict) else {}
    if before and any(map(is_result, folder.iterdir())):
        check_format("record of settings", before, folder / name)
    changed = difference(before, record)
    if changed:
        refuse_results(folder, changed, otherwise)
    return {} if changed else before


def refuse_results(folder: Path, changed: str, otherwise: str) -> None:
    """Raises `UserError` with the changed setting if the folder has results."""
    if any(map(is_result, folder.iterdir())):
        raise UserError(f"{folder} was made with other settings or weights ({changed}): remove it or {otherwise}")


def is_result(file: Path) -> bool:
    """Tells whether a file or folder is not a record, lock or log."""
    return file.name not in (RECORD, SETTINGS, ".lock") and file.suffix != ".log"


def difference(before: Record, now: Record) -> str:
    """Describes the first argument or input file that differs between two records; "" if they are equal.

    New files, such as a corpus that a step downloads or another language of a folder, do not count. A file with the
    same content may have another name.
    """
    old_files, files = before.get("files") or {}, now["files"]
    old, new = [], []  # words; None for further words of the other record's command
    for words in itertools.zip_longest(before.get("commands") or [], now.get("commands") or [], fillvalue=[]):
        for left, right in itertools.zip_longest(*words):
            old.append(left)
            new.append(right)
    renamed: set[str] = set()
    for i, (left, right) in enumerate(zip(old, new)):
        if left == right:
            continue
        pairs = list(itertools.zip_longest(parts(left or ""), parts(right or "")))
        if None in (left, right) or any(
            a != b and (a not in old_files or old_files[a] != files.get(b)) for a, b in pairs
        ):
            option = f"{new[i - 1]} " if 0 < i <= len(new) and new[i - 1].startswith("-") else ""
            if right is None and left.startswith("--"):
                left = " ".join(filter(None, old[i : i + 2]))
            if left is None and right.startswith("--"):
                right = " ".join([right, *(word for word in new[i + 1 : i + 2] if not word.startswith("--"))])
            return f"then {option}{left or 'nothing'}, now {option}{right or 'nothing'}"
        renamed |= {a for a, b in pairs if a != b}
    compared = [path for path in old_files if path in files or path not in renamed]
    return next((f"{name} has changed" for path in compared for name in changed(path, old_files, files)), "")


def changed(path: str, old_files: dict[str, Any], files: dict[str, Any]) -> Iterator[str]:
    """Yields the path of a changed or missing file, or the paths of such files in a folder."""
    before, now = old_files[path], files.get(path)
    if not isinstance(before, dict) or not isinstance(now, dict):
        yield from [path] if before != now else []
    else:
        yield from (f"{path}/{name}" for name in before if now.get(name) != before[name])


def without(flags: tuple[str, ...], arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    """Returns the arguments without the flags, and the last value of each flag."""
    remaining, values = [], {}
    rest = iter(arguments)
    for argument in rest:
        flag, equals, value = argument.partition("=")
        if flag in flags:
            values[flag] = value if equals else next(rest, "")
        else:
            remaining.append(argument)
    return remaining, values


def smaller(before: dict[str, str], now: dict[str, str]) -> str:
    """Describes the first limit that is smaller than before; "" without one. 0 is no limit."""
    for flag in before.keys() & now.keys():
        old, new = before[flag], now[flag]
        if old.isdigit() and new.isdigit() and 0 < int(new) < (int(old) or math.inf):
            return f"then {flag} {old}, now {flag} {new}"
    return ""


def main(folder: Path, arguments: list[str], may_grow: bool = False) -> None:
    """Records the arguments in the folder. Raises `UserError` if its results have other arguments."""
    arguments, _ = without(("--launch",), arguments)  # processes do not change the results
    remaining, limits = without(LIMITS, arguments) if may_grow else (arguments, {})
    digests = Digests(folder)
    words = [word for argument in remaining for word in (argument, *parts(argument))]
    paths = [word for word in words if word and os.path.exists(word)]
    files = {path: digests.of(Path(path)) for path in paths}
    record = {"format": FORMATS["record of settings"], "commands": [remaining], "files": files}
    before = check(folder, SETTINGS, record, "choose another folder")
    changed = smaller(before.get("limits") or {}, limits)
    if changed:
        refuse_results(folder, changed, "choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / SETTINGS, record | ({"limits": limits} if may_grow else {}))


if __name__ == "__main__":
    may_grow = sys.argv[1:2] == ["--may-grow"]
    del sys.argv[1 : 2 if may_grow else 1]
    call(lambda folder, *arguments: main(Path(folder), list(arguments), may_grow), __doc__)
