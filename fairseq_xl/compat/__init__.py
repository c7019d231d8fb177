"""What depends on the installed fairseq, torch and numpy: the only package that knows which they are.

:func:`install` is called once, when the plugin is imported. It makes fairseq's checkpoints safe to read (plain data
only, nothing in the file is run), safe to write (whole or not at all), lets it train in several processes and in 16
bits with and without CUDA, makes an option of beam search hold, and a user's mistake one sentence long.
"""

import functools

from fairseq_xl.compat import generation, loading, log, mistakes, precision, processes, saving, training, workers
from fairseq_xl.compat.configuration import FAIRSEQ_CRITERIONS, check_configuration, check_finite, check_values
from fairseq_xl.compat.installed import HAS_LINEAR_CROSS_ENTROPY
from fairseq_xl.compat.loading import check_checkpoint, load_checkpoint, load_plain
from fairseq_xl.compat.processes import any_rank, end_as_stopped
from fairseq_xl.compat.saving import save_checkpoint
from fairseq_xl.compat.training import early_stopping, restore_early_stopping
from fairseq_xl.io.files import replacing
from fairseq_xl.versions import versions

__all__ = [
    "HAS_LINEAR_CROSS_ENTROPY",
    "FAIRSEQ_CRITERIONS",
    "any_rank",
    "check_checkpoint",
    "check_configuration",
    "check_finite",
    "check_values",
    "early_stopping",
    "end_as_stopped",
    "install",
    "load_checkpoint",
    "load_plain",
    "replacing",
    "restore_early_stopping",
    "save_checkpoint",
    "versions",
]


@functools.lru_cache(maxsize=None)
def install() -> None:
    """Adapt fairseq, torch and the interpreter to this package. A second call changes nothing."""
    for part in (loading, saving, processes, workers, training, log, generation, precision, mistakes):
        part.install()
