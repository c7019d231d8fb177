"""Readers of published corpora, which write corpus folders for `python -m preprocess` (README.md)."""
