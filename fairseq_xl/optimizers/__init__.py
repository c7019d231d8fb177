"""Optimizers that fairseq lacks."""

from fairseq_xl.optimizers import lamb  # noqa: F401
