"""Patches of fairseq and torch: the only package that depends on their internals and versions.

`README.md` lists what each patch changes, why, and how long it is needed.
"""

import functools


@functools.cache
def install() -> None:
    """Patches fairseq and torch. A second call changes nothing."""
    from fairseq.distributed import utils as distributed_utils

    from fairseq_xl.engine.launch import launching
    from fairseq_xl.patches import command_line, generation, literals, loading, log, metrics, security, workers

    distributed_utils.call_main = launching(distributed_utils.call_main)
    for part in (literals, loading, security, workers, log, metrics, generation, command_line):
        part.install()
