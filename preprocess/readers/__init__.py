"""Readers of published corpora, which write corpus folders for `fairseq-xl data prepare` (README.md)."""
