"""Atomic writing of files, JSON, and format numbers. Imports neither torch nor fairseq.

The format number of a file that this package writes and reads again is its entry ``format``. Each change of how a kind
of file is read increases the number of that kind.
"""

import contextlib
import errno
import json
import math
import os
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO

from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io import bounds
from fairseq_xl.io.text import decoded

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
SIZE_LIMIT = "the limit on file sizes (ulimit -f) is reached"  # EFBIG
#: errors that a second attempt does not change
NO_PLACE = {errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.EROFS}
NO_PLACE |= {errno.ENAMETOOLONG}
#: the last record of a zip file without a comment: its signature and size
END, END_BYTES = b"PK\x05\x06", 22
SURROGATE = re.compile("[\ud800-\udfff]")  # half of a character, which no encoding of text has
File = str | os.PathLike[str]
#: kind of file -> what to do with one of another format
REMEDIES = {
    "checkpoint": "train the model again, or convert the published one again with `fairseq-xl model convert`",
    "language module": "extract it again with `fairseq-xl model language-module extract`",
    "ONNX export": "export the model again with `fairseq-xl model export`",
    "data folder": "write the folder again with the command that wrote it, `fairseq-xl data prepare` for text",
    "corpus": "run the same `fairseq-xl data read …` again",
    "note of added files": "remove it, and run the same `fairseq-xl back-translate` or `search negatives` again",
    "note of predictions": "remove it with its predictions, and predict again",
    "partial results": "remove the folder: the command begins anew",
    "score file": "score the predictions again with `fairseq-xl score`",
    "record of settings": "remove the folder or name another one",
}
FORMATS = dict.fromkeys(REMEDIES, 1)


@contextlib.contextmanager
def replacing(path: File, make_folder: bool = False) -> Iterator[BinaryIO]:
    """Opens a file for binary writing that replaces ``path`` at the end, whole, or not at all.

    ``path`` + ".tmp" is written beside it; a file or link of that name is removed first. Raises `UserError` for no room
    on the disk (the content of ``path`` is kept), no such folder, no right to write there, or if ``path`` is a folder,
    a device or the like.
    """
    path = os.fspath(path)
    if os.path.exists(path) and not os.path.isfile(path):
        raise UserError(f"{path} was not written: it is there and not a file")
    temporary = f"{path}.tmp"
    try:
        if make_folder:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        with open(temporary, "xb") as stream:  # "x": a new file, never the target of a link
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
        with contextlib.suppress(OSError):  # some file systems cannot sync a folder; the rename is atomic all the same
            sync(os.path.dirname(path) or ".")
    except Exception as error:
        if isinstance(error, OSError) and error.errno in NO_PLACE:
            raise UserError(f"{path} was not written: {error.strerror}") from error
        reason = room_problem(error)
        if reason is None:
            raise
        remark = " and the previous file is kept" if os.path.exists(path) else ""
        raise UserError(f"{path} was not written{remark}: {reason}") from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def sync(path: File) -> None:
    """Writes a file or the entries of a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def room_problem(error: BaseException | None) -> "str | None":
    """The reason if a full disk or a limit on file sizes caused an error, also in its context, as in torch's writer."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            return SIZE_LIMIT if error.errno == errno.EFBIG else "no room is left on its disk"
        error = error.__cause__ or error.__context__
    return None


def write_json(path: File, content: Any) -> None:
    """Writes JSON, whole or not at all; raises the errors of `replacing`."""
    with replacing(path) as file:
        file.write(json.dumps(content, ensure_ascii=False, indent=1).encode("utf-8") + b"\n")


def write_lines(path: File, lines: Iterable[str]) -> None:
    """Writes lines of text, and the folder of the file; raises the errors of `replacing`."""
    with replacing(path, make_folder=True) as file:
        file.writelines(f"{line}\n".encode() for line in lines)


def parsed_json(text: str, path: object) -> Any:
    """The content of JSON text of a file; `UserError` for other text, repeated keys, infinite or too many numbers."""
    if sum(map(text.count, ",:[{")) > bounds.MOST_VALUES:  # an upper bound: text in strings counts as well
        raise UserError(f"{path}: more than {bounds.MOST_VALUES:,} values, which are too many to be read at once")

    def checked(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) < len(pairs):
            repeated = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
            raise UserError(f"{path}: the key {quoted(repeated)} occurs twice in one object")
        return content

    def finite(value: str) -> float:
        if not math.isfinite(float(value)):
            raise UserError(f"{path}: {value} is not a finite number")
        return float(value)

    try:
        return json.loads(text, object_pairs_hook=checked, parse_float=finite, parse_constant=finite)
    except UserError:
        raise
    except json.JSONDecodeError as error:
        raise UserError(f"{path}, line {error.lineno}: not JSON: {error.msg}") from None
    except (ValueError, RecursionError):
        raise UserError(f"{path}: not JSON that can be read: a number is too long or the nesting too deep") from None


def json_object(path: File) -> dict[str, Any]:
    """The object in a JSON file; raises `UserError` for a missing or damaged file, and for other content."""
    try:
        text = decoded(read_whole(path), path)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    return parsed_object(text, path)


def parsed_object(text: str, path: object) -> dict[str, Any]:
    """As `json_object`, of the text of a file."""
    content = parsed_json(text, path)
    if not isinstance(content, dict):
        raise UserError(f"{path} holds no JSON object")
    if "\\ud" in text.lower() and (half := SURROGATE.search(json.dumps(content, ensure_ascii=False))):
        raise UserError(f"{path}: {half[0]!a} is half of a character, which no text has")
    return content


def read_whole(path: File, vocabulary: bool = False) -> bytes:
    """The content of a file; raises `OSError`, and `UserError` beyond `bounds.LARGEST_FILE` or LARGEST_VOCABULARY."""
    with open(path, "rb") as file:
        content = file.read(bounds.LARGEST_FILE + 1)
    if len(content) > bounds.LARGEST_FILE:
        raise UserError(f"{path}: more than {bounds.LARGEST_FILE >> 20} MiB, which are too many to be read at once")
    if vocabulary and content.count(b"\n") > bounds.LARGEST_VOCABULARY:
        raise UserError(f"{path}: more than {bounds.LARGEST_VOCABULARY:,} lines, which are too many to be read at once")
    return content


def read_json(path: File) -> Any:
    """The content of a JSON file that can be written again; None for a missing or damaged one."""
    try:
        return json.loads(read_whole(path).decode("utf-8"))
    except (FileNotFoundError, ValueError, RecursionError):
        return None


def is_whole_file(archive: zipfile.ZipFile) -> bool:
    """Whether a zip file has no bytes before or after the archive, which zipfile and torch would ignore."""
    stream = archive.fp
    assert stream is not None, "the archive is open"
    position = stream.tell()
    stream.seek(0, 2)
    stream.seek(max(0, stream.tell() - END_BYTES))
    end = stream.read()
    stream.seek(position)
    first = min((part.header_offset for part in archive.infolist()), default=0)
    return end.startswith(END) and end.endswith(b"\0\0") and first == 0


def check_format(kind: str, content: Mapping[str, Any], path: object) -> None:
    """Raises `UserError` unless the content of a file, or its part with the number, has the format of its kind."""
    number = content.get("format")
    if number != FORMATS[kind]:
        raise UserError(
            f"{path}: {kind} of format {quoted(number)}, this version of fairseq_xl reads format {FORMATS[kind]}: "
            f"{REMEDIES[kind]}"
        )
