"""Folders that are written whole or not at all, temporary ones, and locks. Imports neither torch nor fairseq."""

import contextlib
import errno
import fcntl
import glob
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fairseq_xl.errors import UserError
from fairseq_xl.io.files import NO_PLACE, room_problem, sync


@contextlib.contextmanager
def new_folder(path: "str | os.PathLike") -> Iterator[Path]:
    """Yields a temporary folder beside ``path`` that becomes ``path`` at the end; after an error it is removed.

    The folders above ``path`` are made where there are none. Raises `UserError` if ``path`` exists or another process
    is writing it, without room on the disk or the right to write there. In messages of errors in the block, ``path``
    stands in place of the temporary folder.
    """
    final = Path(path)
    if not final.name or final.exists() or final.is_symlink():
        raise UserError(f"{final} exists: name a new folder")
    above = next(folder for folder in final.absolute().parents if folder.exists())
    if not above.is_dir():
        raise UserError(f"{final} was not written: {above} is a file")
    temporary = None
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(final.parent, final.name, single=True) as temporary:
            umask = os.umask(0)  # the umask of the process can be read only by setting it
            os.umask(umask)
            temporary.chmod(0o777 & ~umask)
            yield temporary
            for file in temporary.rglob("*"):
                if file.is_file():
                    sync(file)
            os.rename(temporary, final)
        sync(final.parent)
    except BlockingIOError as error:
        raise UserError(f"{final} was not written: another process is writing it") from error
    except UserError as error:
        raise UserError(str(error).replace(str(temporary), str(final))) from error
    except Exception as error:
        if isinstance(error, OSError) and error.errno in NO_PLACE | {errno.ENOTEMPTY}:
            raise UserError(f"{final} was not written: {error.strerror}") from error
        reason = room_problem(error)
        if reason is None:
            raise
        raise UserError(f"{final} was not written: {reason}") from error


@contextlib.contextmanager
def temporary_folder(parent: Path, name: str, single: bool = False) -> Iterator[Path]:
    """Yields a new hidden folder in `parent`, locked and removed at the end; first removes those of killed processes.

    Raises `BlockingIOError` if `single` and another process has a folder of the same `name`.
    """
    prefix = f".{name}.unfinished-"
    for abandoned in parent.glob(f"{glob.escape(prefix)}????????"):
        try:
            descriptor = _lock(abandoned)
        except BlockingIOError:
            if single:
                raise
        except OSError:  # it is not a folder, or folders cannot be locked here
            continue
        else:
            shutil.rmtree(abandoned, ignore_errors=True)
            os.close(descriptor)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    with contextlib.ExitStack() as stack:
        # NFS cannot remove files that are still mapped
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            stack.callback(os.close, _lock(folder))
        yield folder


def _lock(folder: Path) -> int:
    """Locks a folder, until the descriptor that it returns is closed; `BlockingIOError` if another process has it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


@contextlib.contextmanager
def locked(path: str | os.PathLike[str], message: str | None) -> Iterator[None]:
    """Locks the file `path`, which is made and stays, until the block or the process ends.

    If another process has the lock, raises `UserError` with the message; without a message, waits for it.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    except OSError as error:
        raise UserError(f"{path}: cannot be made, which locks the folder: {error.strerror}") from error
    with open(descriptor, "a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if message is None else fcntl.LOCK_NB))
        except BlockingIOError as error:
            raise UserError(message) from error
        yield
