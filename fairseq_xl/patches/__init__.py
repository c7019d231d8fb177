"""Patches of fairseq and torch: the only package that depends on their internals and versions.

`README.md` lists what each patch changes, why, and how long it is needed.
"""

import functools


@functools.cache
def install() -> None:
    """Patches fairseq and torch. A second call changes nothing."""
    from fairseq_xl.patches import (
        command_line,
        generation,
        literals,
        loading,
        log,
        loss_scale,
        metrics,
        norms,
        precision,
        processes,
        saving,
        security,
        sharding,
        training,
        workers,
    )

    # Of several patches of one function, the last one is the outermost.
    # - verify_checkpoint_directory: saving replaces fairseq's function, which log then wraps.
    # - call_main: log makes the folder of --log-file before processes starts the ranks.
    # - parse_args_and_arch and Trainer.__init__: the checks of command_line enclose the changes of precision.
    for part in (
        literals,
        loading,
        saving,
        security,
        processes,
        workers,
        training,
        log,
        metrics,
        generation,
        precision,
        loss_scale,
        norms,
        sharding,
        command_line,
    ):
        part.install()
