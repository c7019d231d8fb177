"""Folders of predictions, each of one model: a note beside the files says of which, and what they contain.

The note, ``predictions.json``, has the model's file with its SHA-256, the task, and the SHA-256 of each file. Files of
another model are not added, and a file that is not as the note has it is not scored. Folders without a note, of other
programs and earlier versions, are read as they are. Outputs of fairseq-generate and embeddings, of which each is a
whole, have a note of their own, FILE.json: the model and its SHA-256. Imports neither torch nor fairseq.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io.files import json_object, replacing, sha256_of, write_json

NOTE = "predictions.json"


class Origin(NamedTuple):
    """What predictions are made by."""

    model: str  # file of the checkpoint, folder of a training, or name of a baseline
    sha256: str | None  # of the checkpoint
    task: str  # task type, such as classification

    @classmethod
    def of_checkpoint(cls, path: Any, task: str) -> "Origin":
        """The origin of predictions by a checkpoint."""
        return cls(str(path), sha256_of(path), task)

    def is_same(self, other: "Origin | None") -> bool:
        """Whether two origins are one model for one task; a copy of a checkpoint is the same."""
        return (
            other is not None
            and self.task == other.task
            and self.sha256 == other.sha256
            and bool(self.sha256 or self.model == other.model)
        )


def read_note(folder: Path) -> tuple[Origin, dict[str, str]] | None:
    """The origin of a folder's files, and their SHA-256; None without a note. Raises `UserError` for a damaged note."""
    path = folder / NOTE
    if not path.is_file():
        return None
    found = json_object(path)
    if not isinstance(found.get("files"), dict):
        raise UserError(f"{path} is damaged: files is {quoted(found.get('files'))}")
    return origin_in(path, found), found["files"]


def origin_in(path: Any, note: dict[str, Any]) -> Origin:
    """The origin in a note, the content of the file `path`; raises `UserError` for a damaged one."""
    for name, kind in {"model": str, "sha256": str | None, "task": str}.items():
        if not isinstance(note.get(name), kind):
            raise UserError(f"{path} is damaged: {name} is {quoted(note.get(name))}")
    return Origin(note["model"], note["sha256"], note["task"])


def check_replaceable(folder: Path, origin: Origin | None, written: Iterable[str]) -> None:
    """Raises `UserError` if a folder would keep files of another model beside new ones.

    Args:
        written: beginnings of the names of the files that will be written.
    """
    note, begins = read_note(folder), tuple(written)
    if note is None or note[0].is_same(origin):
        return
    kept = [name for name in note[1] if not name.startswith(begins) and (folder / name).is_file()]
    if kept:
        raise UserError(
            f"{folder} has predictions of {note[0].model} ({note[0].task}), {kept[0]} among them: expected an "
            f"empty folder{f', or one of {origin.model}' if origin else ''}"
        )


def write(folder: Path, origin: Origin | None, files: dict[str, str], more: Iterable[str] = ()) -> None:
    """Writes predictions, {name: text}, and the note, which does not name them until they are whole.

    Args:
        origin: None if it is not known: there is no note then.
        more: beginnings of the names of files that will be written after these.

    Raises the errors of `check_replaceable` and of `replacing`.
    """
    check_replaceable(folder, origin, [*files, *more])
    note = read_note(folder)
    same = note is not None and note[0].is_same(origin)
    others = {name: digest for name, digest in note[1].items() if name not in files} if note and same else {}
    folder.mkdir(parents=True, exist_ok=True)
    contents = {name: text.encode() for name, text in files.items()}
    if origin is None:
        (folder / NOTE).unlink(missing_ok=True)
    else:
        write_json(folder / NOTE, origin._asdict() | {"files": others})
    for name, content in contents.items():
        with replacing(folder / name) as file:
            file.write(content)
    if origin is not None:
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
        write_json(folder / NOTE, origin._asdict() | {"files": others | digests})


def check(path: Path, tasks: Iterable[str] = ()) -> Origin | None:
    """Returns the origin of a file of predictions; None in a folder without a note.

    Args:
        tasks: task types that the predictions may be of; empty: any.

    Raises `UserError` for another task, and for a file that is not as the note of its folder has it.
    """
    note = read_note(path.parent)
    if note is None:
        return None
    origin, files = note
    if tasks and origin.task not in tasks:
        raise UserError(f"{path}: expected predictions of {' or '.join(tasks)}, found those of {origin.task}")
    if path.name not in files:
        raise UserError(
            f"{path} is not one of the files of {origin.model} that {path.parent / NOTE} has: write it again"
        )
    if sha256_of(path) != files[path.name]:
        raise UserError(f"{path} is not as {origin.model} wrote it: {path.parent / NOTE} has another SHA-256")
    return origin


def write_origin(path: Any, origin: Origin, **more: str) -> None:
    """Writes the note of a file, ``PATH.json``, with `more` entries."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_json(f"{path}.json", origin._asdict() | more)


def check_language(path: Any, language: str) -> None:
    """Raises `UserError` if the note of a file names another language; a file without a note may be of any."""
    note = Path(f"{path}.json")
    found = json_object(note).get("language", language) if note.is_file() else language
    if found != language:
        raise UserError(f"{path} is of text in {quoted(found)}: expected {language}")


def check_same_origin(paths: Iterable[Any]) -> None:
    """Raises `UserError` for files of which the notes name different models or tasks; those without a note may be."""
    notes = [(path, Path(f"{path}.json")) for path in paths]
    known = [(path, origin_in(note, json_object(note))) for path, note in notes if note.is_file()]
    for path, origin in known[1:]:
        first, expected = known[0]
        if not origin.is_same(expected):
            raise UserError(
                f"{path} is of {origin.model} ({origin.task}), but {first} of {expected.model} ({expected.task}): "
                "expected files of one model"
            )
