"""Readers of published corpora: each writes a corpus folder for `python -m preprocess` (README.md)."""
