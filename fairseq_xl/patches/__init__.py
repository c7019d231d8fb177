"""Patches of fairseq and torch: the only package that depends on their internals and versions.

`README.md` lists what each patch changes, why, and how long it is needed.
"""

import functools


@functools.cache
def install() -> None:
    """Patches fairseq and torch. A second call changes nothing."""
    from fairseq_xl.patches import command_line, generation, launch, literals, loading, log, security

    for part in (launch, literals, loading, security, log, generation, command_line):
        part.install()
