"""Folders that are written whole or not at all. Imports neither torch nor fairseq."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from fairseq_xl.errors import UserError
from fairseq_xl.io.files import NO_PLACE, no_room


@contextlib.contextmanager
def new_folder(path: "str | os.PathLike") -> Iterator[Path]:
    """Yields a temporary folder, ``path`` + ".tmp", that becomes ``path`` at the end; after an error it is removed.

    Raises:
        UserError: ``path`` exists, there is no room on the disk, no parent folder, or no right to write there.
    """
    final = Path(path)
    temporary = final.with_name(f"{final.name}.tmp")
    if final.exists() or final.is_symlink():
        raise UserError(f"{final} exists: name a new folder")
    try:
        if temporary.exists():
            shutil.rmtree(temporary)
        temporary.mkdir()
        yield temporary
        for file in temporary.rglob("*"):
            if file.is_file():
                _sync(file)
        os.rename(temporary, final)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in NO_PLACE:
            raise UserError(f"{final} was not written: {error.strerror}") from error
        if no_room(error):
            raise UserError(f"{final} was not written: no room is left on its disk") from error
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _sync(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
