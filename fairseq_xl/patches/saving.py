"""Patches of writing checkpoints: whole or not at all."""

import functools
import logging
import os
import shutil
import tempfile
import time

from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from fairseq_xl.errors import UserError
from fairseq_xl.io.checkpoints import save_checkpoint
from fairseq_xl.io.files import replacing

logger = logging.getLogger(__name__)

SAVE_ATTEMPTS = 3
SECONDS_BETWEEN_ATTEMPTS = 2.5


def install() -> None:
    """Makes fairseq save and copy checkpoints atomically, and test their folder without touching a file."""
    PathManager.copy = staticmethod(_copy_atomically(PathManager.copy))
    checkpoint_utils.verify_checkpoint_directory = _check_folder
    checkpoint_utils.torch_persistent_save = _save_atomically(checkpoint_utils.torch_persistent_save)


def _check_folder(save_dir):
    """Raises `UserError` unless --save-dir is writable; takes the place of fairseq's test, which empties a file.

    It writes a temporary file. fairseq empties the file "dummy", or the target of a link of this name.
    """
    try:
        os.makedirs(save_dir, exist_ok=True)
        tempfile.TemporaryFile(dir=save_dir).close()
    except OSError as error:
        raise UserError(f"--save-dir {save_dir}: {error.strerror}") from error


def _copy_atomically(original):
    """Copies atomically: checkpoint_best and checkpoint_last are copies, which a kill must not truncate."""

    @functools.wraps(original)
    def copy(src_path, dst_path, overwrite=False):
        """Copies a local file atomically, any other as fairseq does."""
        if not PathManager.supports_rename(dst_path) or not PathManager.supports_rename(src_path):
            return original(src_path, dst_path, overwrite=overwrite)
        with open(src_path, "rb") as source, replacing(dst_path) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        return dst_path

    return copy


def _save_atomically(original):
    """Saves atomically and tries again on a new file; fairseq does not sync, and tries again on a half-written one."""

    @functools.wraps(original)
    def torch_persistent_save(obj, filename, async_write=False):
        """Saves to a local file atomically, elsewhere as fairseq does."""
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
