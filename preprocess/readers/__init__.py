"""Readers: published corpora to the corpus folder that `python -m preprocess` reads (README.md)."""
