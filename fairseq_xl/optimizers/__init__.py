"""Optimizers that fairseq lacks, or has in a slower form."""

from fairseq_xl.optimizers import adam, lamb  # noqa: F401
