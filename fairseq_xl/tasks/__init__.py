"""fairseq tasks. fairseq imports this package for ``--user-dir fairseq_xl``, which registers all the others too."""

from fairseq_xl import registration  # noqa: F401
