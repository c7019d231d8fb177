"""Notes of the model of predictions, so that files of several models are not scored together.

A folder of predictions has the note ``predictions.json``: the model's file and its SHA-256, the task, and the SHA-256
of each prediction file. Files of another model are not added to the folder, and files that differ from the note are not
scored. Folders without a note, of other programs, are accepted. The note of an output of fairseq-generate or of a file
of embeddings is FILE.json: the model, its SHA-256 and the task. Imports neither torch nor fairseq.
"""

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io.files import FORMATS, check_format, json_object, replacing, write_json
from fairseq_xl.io.fingerprints import sha256_of

NOTE = "predictions.json"


class Origin(NamedTuple):
    """The model and the task of predictions."""

    model: str  # file of the checkpoint, folder of a training, or name of a baseline
    sha256: str | None  # of the checkpoint
    task: str  # task type, such as classification

    @classmethod
    def from_checkpoint(cls, path: Any, task: str) -> "Origin":
        return cls(str(path), sha256_of(path), task)

    @classmethod
    def from_ensemble(cls, origins: Sequence["Origin"]) -> "Origin":
        """The origin of predictions by several models of one task, whose files and hashes are joined by ``:``."""
        if len(origins) == 1:
            return origins[0]
        names, digests = (os.pathsep.join(map(str, parts)) for parts in zip(*(origin[:2] for origin in origins)))
        return cls(names, digests, origins[0].task)

    def is_same(self, other: "Origin | None") -> bool:
        """Whether two origins have one model and one task; a copy of a checkpoint is the same model."""
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
    note = json_object(path)
    origin = origin_in(path, note)
    if not isinstance(note.get("files"), dict):
        raise UserError(f"{path} is damaged: files is {quoted(note.get('files'))}")
    return origin, note["files"]


def origin_in(path: Any, note: dict[str, Any]) -> Origin:
    """The origin in a note, the content of the file `path`; raises `UserError` for a damaged one or another format."""
    check_format("note of predictions", note, path)
    for name, expected in {"model": str, "sha256": str | None, "task": str}.items():
        if not isinstance(note.get(name), expected):
            raise UserError(f"{path} is damaged: {name} is {quoted(note.get(name))}")
    return Origin(note["model"], note["sha256"], note["task"])


def _entries(origin: Origin) -> dict[str, Any]:
    return {"format": FORMATS["note of predictions"]} | origin._asdict()


def check_replaceable(folder: Path, origin: Origin | None, written: Iterable[str]) -> None:
    """Raises `UserError` if files of another model would stay beside those whose names begin with one of `written`."""
    note, prefixes = read_note(folder), tuple(written)
    if note is None or note[0].is_same(origin):
        return
    remaining = [name for name in note[1] if not name.startswith(prefixes) and (folder / name).is_file()]
    if remaining:
        model = f"an earlier {note[0].model}" if origin and origin.model == note[0].model else note[0].model
        expected = f"an empty folder, or one of {origin.model}" if origin else "an empty folder"
        raise UserError(
            f"{folder} has predictions of {model} ({note[0].task}), {remaining[0]} among them: expected {expected}"
        )


def write_predictions(folder: Path, origin: Origin | None, files: dict[str, str], later: Iterable[str] = ()) -> None:
    """Writes predictions, {name: text}, and the note, which names them only when they are complete.

    Without an origin there is no note; `later` has prefixes of files to come. Raises the errors of `check_replaceable`.
    """
    check_replaceable(folder, origin, [*files, *later])
    note = read_note(folder)
    remaining = note[1] if note and note[0].is_same(origin) else {}
    remaining = {name: digest for name, digest in remaining.items() if name not in files}
    folder.mkdir(parents=True, exist_ok=True)
    contents = {name: text.encode() for name, text in files.items()}
    if origin is None:
        (folder / NOTE).unlink(missing_ok=True)
    else:
        write_json(folder / NOTE, _entries(origin) | {"files": remaining})
    for name, content in contents.items():
        with replacing(folder / name) as file:
            file.write(content)
    if origin is not None:
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
        write_json(folder / NOTE, _entries(origin) | {"files": remaining | digests})


def check_predictions(path: Path, tasks: Iterable[str] = ()) -> Origin | None:
    """The origin of a prediction file, None without a note; `UserError` for another task than `tasks`, or SHA-256."""
    note, output_note = read_note(path.parent), Path(f"{path}.json")
    if note is None and not output_note.is_file():
        return None
    origin, files = note or (origin_in(output_note, json_object(output_note)), {path.name: sha256_of(path)})
    if tasks and origin.task not in tasks:
        raise UserError(f"{path}: expected predictions of {' or '.join(tasks)}, found those of {origin.task}")
    if path.name not in files:
        raise UserError(
            f"{path} is not one of the files of {origin.model} that {path.parent / NOTE} names: write it again"
        )
    if sha256_of(path) != files[path.name]:
        raise UserError(f"{path} is not as {origin.model} wrote it: {path.parent / NOTE} has another SHA-256")
    return origin


def write_origin(path: Any, origin: Origin, **entries: str) -> None:
    """Writes the note of a file, ``PATH.json``, with more `entries`."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_json(f"{path}.json", _entries(origin) | entries)


def check_noted_language(path: Any, language: str) -> None:
    """Raises `UserError` if the note of a file names another language; files without a note are accepted."""
    note = Path(f"{path}.json")
    noted = json_object(note).get("language", language) if note.is_file() else language
    if noted != language:
        raise UserError(f"{path} is of text in {quoted(noted)}: expected {language}")


def check_same_origin(paths: Iterable[Any]) -> None:
    """Raises `UserError` for files whose notes name different models or tasks; files without a note are accepted."""
    notes = [(path, Path(f"{path}.json")) for path in paths]
    origins = [(path, origin_in(note, json_object(note))) for path, note in notes if note.is_file()]
    for path, origin in origins[1:]:
        first, expected = origins[0]
        if not origin.is_same(expected):
            raise UserError(
                f"{path} is of {origin.model} ({origin.task}), but {first} of {expected.model} ({expected.task}): "
                "expected files of one model"
            )
