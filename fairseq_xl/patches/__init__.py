"""Patches of fairseq and torch: the only package that knows which versions of them are installed.

`README.md` lists what each patch changes, why, and for which versions.
"""

import functools


@functools.cache
def install() -> None:
    """Patches fairseq and torch. A second call changes nothing."""
    from fairseq_xl.patches import (
        command_line,
        generation,
        loading,
        log,
        precision,
        processes,
        saving,
        training,
        workers,
    )

    for part in (loading, saving, processes, workers, training, log, generation, precision, command_line):
        part.install()
