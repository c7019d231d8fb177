"""Writing files whole or not at all, checkpoints first of all."""

import contextlib
import errno
import functools
import logging
import os
import shutil
import tempfile
import time

import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from fairseq_xl.errors import UserError

logger = logging.getLogger(__name__)

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
#: what trying again does not change
NO_PLACE = {errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.EROFS}
NO_PLACE |= {errno.ENAMETOOLONG}
SAVE_ATTEMPTS = 3
SECONDS_BETWEEN_ATTEMPTS = 2.5


def install() -> None:
    """Make fairseq save and copy checkpoints in one step, and look at their folder in words of its own."""
    PathManager.copy = staticmethod(_copying_in_one_step(PathManager.copy))
    checkpoint_utils.verify_checkpoint_directory = _telling_of_the_folder(checkpoint_utils.verify_checkpoint_directory)
    checkpoint_utils.torch_persistent_save = _saving_in_one_step(checkpoint_utils.torch_persistent_save)


@contextlib.contextmanager
def replacing(path):
    """Open a file for binary writing that takes the place of ``path`` at the end, whole, or not at all.

    Args:
        path: a local file name; ``path`` + ".tmp" is written beside it. A file or link of that name is removed first,
            and a link is not followed.

    Raises:
        UserError: no room on the disk (what ``path`` held is kept), no such folder, no right to write there, or
            ``path`` is a folder, a device or the like.
    """
    path = os.fspath(path)
    if os.path.exists(path) and not os.path.isfile(path):
        raise UserError(f"{path} was not written: it is there and not a file")
    temporary = f"{path}.tmp"
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        with open(temporary, "xb") as stream:  # "x": a new file, never the target of a link
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
        _sync_folder(os.path.dirname(path) or ".")
    except Exception as error:
        if isinstance(error, OSError) and error.errno in NO_PLACE:
            raise UserError(f"{path} was not written: {error.strerror}") from error
        if not _no_room(error):
            raise
        kept = " and the previous file is kept" if os.path.exists(path) else ""
        raise UserError(f"{path} was not written{kept}: no room is left on its disk") from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def save_checkpoint(state, path) -> None:
    """Write a checkpoint with torch.save, whole or not at all.

    Args:
        state: plain data and tensors.
        path: a local file name.

    Raises:
        UserError: no room on the disk; what ``path`` held is kept.
    """
    with replacing(path) as stream:
        torch.save(state, stream)


def _sync_folder(folder: str) -> None:
    with contextlib.suppress(OSError):  # some file systems cannot sync a folder; the rename is atomic all the same
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _no_room(error) -> bool:
    """torch's writer fails a second time while it closes the file, and hides the first error in the context."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            return True
        error = error.__cause__ or error.__context__
    return False


def _telling_of_the_folder(original):
    """Tests whether --save-dir is writable by a temporary file; fairseq empties "dummy", or the target of a link."""

    @functools.wraps(original)
    def verify_checkpoint_directory(save_dir):
        try:
            os.makedirs(save_dir, exist_ok=True)
            tempfile.TemporaryFile(dir=save_dir).close()
        except OSError as error:
            raise UserError(f"--save-dir {save_dir}: {error.strerror}") from error

    return verify_checkpoint_directory


def _copying_in_one_step(original):
    """checkpoint_best and checkpoint_last are copies: a kill in the middle of one must not truncate it."""

    @functools.wraps(original)
    def copy(src_path, dst_path, overwrite=False):
        if not PathManager.supports_rename(dst_path) or not PathManager.supports_rename(src_path):
            return original(src_path, dst_path, overwrite=overwrite)
        with open(src_path, "rb") as source, replacing(dst_path) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        return dst_path

    return copy


def _saving_in_one_step(original):
    """fairseq renames, but does not sync, and tries again on a file that is already half written."""

    @functools.wraps(original)
    def torch_persistent_save(obj, filename, async_write=False):
        if async_write or not PathManager.supports_rename(filename):
            return original(obj, filename, async_write=async_write)
        for attempt in range(1, SAVE_ATTEMPTS + 1):
            try:
                return save_checkpoint(obj, filename)
            except OSError as error:
                if attempt == SAVE_ATTEMPTS:
                    raise
                logger.warning("could not write %s (%s), trying again", filename, error)
                time.sleep(SECONDS_BETWEEN_ATTEMPTS)

    return torch_persistent_save
