"""The command: ``python -m preprocess.readers.wmt14 DEST --pairs en-de,en-fr``."""

import argparse
import sys
from pathlib import Path

from fairseq_xl.errors import UserError
from preprocess.readers import command
from preprocess.readers.wmt14.archives import PAIRS
from preprocess.readers.wmt14.corpus import build


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m preprocess.readers.wmt14",
        description="WMT14 from the official archives, and the news test sets.",
    )
    parser.add_argument("destination", metavar="DEST", type=Path, help="folder to write; an interrupted run is resumed")
    parser.add_argument(
        "--pairs", default="en-de", metavar="PAIR,PAIR", help=f"any of {', '.join(PAIRS)} (default: en-de)"
    )
    options = parser.parse_args(arguments)

    def work() -> None:
        pairs = list(dict.fromkeys(options.pairs.split(",")))
        if unknown := [pair for pair in pairs if pair not in PAIRS]:
            raise UserError(f"--pairs: unknown {', '.join(map(repr, unknown))}; valid: {', '.join(PAIRS)}")
        build(options.destination, pairs)

    return command.run("wmt14", work)


if __name__ == "__main__":
    command.end_on_sigterm()
    sys.exit(main())
