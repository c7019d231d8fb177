"""Commands of ``fairseq-xl data`` that prepare text: options, log, and errors in one sentence."""

import argparse
import logging
import sys
from collections.abc import Callable
from pathlib import Path

from tqdm.contrib.logging import logging_redirect_tqdm

from fairseq_xl import commands
from fairseq_xl.errors import UserError, in_range
from fairseq_xl.io import bounds
from fairseq_xl.io.files import SIZE_LIMIT, room_problem
from fairseq_xl.io.signals import ending_by_exception
from fairseq_xl.io.text import use_utf8


class Formatter(logging.Formatter):
    """Formats records as their messages, with a mark before warnings."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the message of a record."""
        return ("warning: " if record.levelno >= logging.WARNING else "") + super().format(record)


def parser_of(module: str) -> argparse.ArgumentParser:
    """The parser of a command that reads a description, with the options of its vocabulary."""
    parser = commands.parser_of(module)
    parser.add_argument(
        "config", metavar="CONFIG.yaml", help="description of languages, monolingual files, bitext and test sets"
    )
    jobs = in_range(int, "1 or more", bounds.MOST_PROCESSES)
    parser.add_argument("--jobs", action=jobs, default=1, metavar="N", help="number of parallel processes (default: 1)")
    parser.add_argument(
        "--vocabulary-from",
        metavar="FOLDER",
        help="reuse the sub-words, dictionary and tokenizers of a data folder",
    )
    return parser


def run(work: Callable[[], object], folder: str | Path | None, prefix: str = "") -> int:
    """Runs the work of a command that writes a folder; returns the exit status. Log lines appear above progress bars.

    It is 1 after an error, which is one message on stderr, begun by `prefix`, and 130 after Ctrl-C.
    """
    use_utf8()
    console = logging.StreamHandler(sys.stderr)
    console.setFormatter(Formatter())
    logging.basicConfig(level=logging.INFO, handlers=[console])
    try:
        with ending_by_exception(), logging_redirect_tqdm():
            work()
    except (UserError, OSError) as error:
        if room_problem(error) == SIZE_LIMIT:
            message = f"{folder}: {SIZE_LIMIT}: raise it, and run the same command to continue"
        elif room_problem(error):
            message = f"The disk of {folder} is full: make room, and run the same command to continue"
        else:
            message = str(error)
            if isinstance(error, OSError):
                message = f"{error.filename or folder}: {error.strerror or error}"
        sys.stderr.write(f"{prefix}{message}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write(f"{prefix}Interrupted: run the same command to continue\n")
        return 130
    return 0
