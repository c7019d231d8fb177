"""fairseq tasks. ``--user-dir fairseq_xl`` imports this package, and with it registers all models and criterions."""

from fairseq_xl import registration  # noqa: F401
