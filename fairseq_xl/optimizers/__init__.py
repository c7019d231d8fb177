"""Optimizers and a learning rate schedule that fairseq lacks, or has in a slower form."""

from fairseq_xl.optimizers import adam, lamb, linear_schedule  # noqa: F401
