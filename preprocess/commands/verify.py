"""Reads every file of a complete data folder, and lists the changes since it was written."""

import argparse
import logging
from pathlib import Path

from preprocess.commands import run
from preprocess.verification import verify


def main(words: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="fairseq-xl data verify", description=__doc__)
    parser.add_argument("data", type=Path, metavar="DATA", help="data folder")
    data = parser.parse_args(words).data
    return run(lambda: logging.info("%s: all %d files are unchanged", data, verify(data)), data)
