"""Folders that are written whole or not at all. Imports neither torch nor fairseq."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fairseq_xl.errors import UserError
from fairseq_xl.io.files import NO_PLACE, room_problem


@contextlib.contextmanager
def new_folder(path: "str | os.PathLike") -> Iterator[Path]:
    """Yields a temporary folder beside ``path`` that becomes ``path`` at the end; after an error it is removed.

    The folders above ``path`` are made where there are none.

    Raises:
        UserError: ``path`` exists, there is no room on the disk, or no right to write there. In messages of errors in
            the block, ``path`` stands in place of the temporary folder.
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
        temporary = Path(tempfile.mkdtemp(prefix=f".{final.name}.", dir=final.parent))
        temporary.chmod(0o777 & ~_umask())
        yield temporary
        for file in temporary.rglob("*"):
            if file.is_file():
                _sync(file)
        os.rename(temporary, final)
        _sync(final.parent)
    except UserError as error:
        raise UserError(str(error).replace(str(temporary), str(final))) from error
    except Exception as error:
        if isinstance(error, OSError) and error.errno in NO_PLACE:
            raise UserError(f"{final} was not written: {error.strerror}") from error
        reason = room_problem(error)
        if reason is None:
            raise
        raise UserError(f"{final} was not written: {reason}") from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def _umask() -> int:
    """The permissions that new files do not get; reading them means setting them."""
    umask = os.umask(0)
    os.umask(umask)
    return umask


def _sync(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
