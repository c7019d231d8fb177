"""The command: ``python -m preprocess CONFIG.yaml DATA_BIN``, and ``python -m preprocess --verify DATA_BIN``."""

import argparse
import importlib.util
import logging
import sys
from pathlib import Path

from tqdm.contrib.logging import logging_redirect_tqdm

from fairseq_xl.errors import UserError
from fairseq_xl.io import bounds
from fairseq_xl.io.files import SIZE_LIMIT, room_problem
from fairseq_xl.io.signals import ending_by_exception
from fairseq_xl.io.text import use_utf8
from preprocess.pipeline import prepare
from preprocess.verification import verify


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parses and checks the command line."""
    parser = argparse.ArgumentParser(prog="python -m preprocess", description="From raw text to a data folder.")
    parser.add_argument(
        "config", nargs="?", help="YAML description of languages, monolingual files, bitext and test sets"
    )
    parser.add_argument("data_bin", nargs="?", help="folder to write; an interrupted run is resumed")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="number of parallel processes (default: 1)")
    parser.add_argument("--spm-model", metavar="FILE", help="reuse this SentencePiece model, together with --dict")
    parser.add_argument("--dict", metavar="FILE", help="reuse this dict.txt, together with --spm-model")
    parser.add_argument("--check-only", action="store_true", help="report on the input and stop")
    parser.add_argument(
        "--verify",
        type=Path,
        metavar="DATA_BIN",
        help="read every file of a complete data folder and list the changes since it was written",
    )
    options = parser.parse_args(arguments)
    if options.verify is not None:
        if options.config is not None:
            parser.error(f"--verify {options.verify} takes no other folder or file, found {options.config}")
        conflicting = [
            f"--{name.replace('_', '-')}"
            for name in ("jobs", "spm_model", "dict", "check_only")
            if getattr(options, name) != parser.get_default(name)
        ]
        if conflicting:
            parser.error(f"--verify {options.verify} takes no other option, found {', '.join(conflicting)}")
        return options
    if options.config is None:
        parser.error("CONFIG.yaml is missing")
    if options.data_bin is None and not options.check_only:
        parser.error("DATA_BIN is missing")
    if options.jobs < 1:
        parser.error(f"--jobs must be 1 or more, found {options.jobs}")
    if options.jobs >= bounds.MOST_PROCESSES:
        parser.error(f"--jobs must be below {bounds.MOST_PROCESSES}, found {options.jobs}")
    return options


class Formatter(logging.Formatter):
    """Formats records as their messages, with a mark before warnings."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the message of a record."""
        return ("warning: " if record.levelno >= logging.WARNING else "") + super().format(record)


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; the exit status is 1 after an error, which is one message on stderr without a traceback."""
    use_utf8()
    options = parse_arguments(arguments)
    console = logging.StreamHandler(sys.stderr)
    console.setFormatter(Formatter())
    logging.basicConfig(level=logging.INFO, handlers=[console])
    try:
        if options.data_bin and not options.check_only and importlib.util.find_spec("fairseq_cli") is None:
            raise UserError(
                "The package fairseq is missing: `. recipes/environment.sh` in the repository prepares and activates "
                "the environment"
            )
        if options.verify is not None:
            logging.info("%s: all %d files are unchanged", options.verify, verify(options.verify))
            return 0
        with ending_by_exception(), logging_redirect_tqdm():  # log lines appear above the progress bar
            prepare(options.config, options.data_bin, options.jobs, options.spm_model, options.dict, options.check_only)
    except (UserError, OSError) as error:
        if room_problem(error) == SIZE_LIMIT:
            message = f"{options.data_bin}: {SIZE_LIMIT}: raise it, and run the same command to continue"
        elif room_problem(error):
            message = f"The disk of {options.data_bin} is full: make room, and run the same command to continue"
        else:
            message = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
        sys.stderr.write(f"{message}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted: run the same command to continue\n")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
