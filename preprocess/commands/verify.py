"""Reads every file of a complete data folder, and lists the changes since it was written.

    fairseq-xl data verify data-bin/my

The exit status is 1 if a file has changed.
"""

import logging
from pathlib import Path

from fairseq_xl.commands import parser_of
from preprocess.commands import run
from preprocess.verification import verify


def main(words: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    parser = parser_of(__name__)
    parser.add_argument("data", type=Path, metavar="DATA", help="data folder")
    data = parser.parse_args(words).data
    return run(lambda: logging.info("%s: all %d files are unchanged", data, verify(data)), data)
