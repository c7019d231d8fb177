"""Reads WMT14 and WMT16 from the official archives, and the news test sets.

    fairseq-xl data read wmt corpora/wmt --pairs en-de,en-fr,en-ro

An interrupted run is resumed.
"""

from pathlib import Path

from fairseq_xl.commands import parser_of
from fairseq_xl.errors import UserError, names_of
from preprocess.commands import run
from preprocess.readers import romanian
from preprocess.readers.wmt.corpus import build
from preprocess.readers.wmt.pairs import PAIRS


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    parser = parser_of(__name__)
    parser.add_argument("destination", metavar="DEST", type=Path, help="folder to write; an interrupted run is resumed")
    parser.add_argument(
        "--pairs", default="en-de", metavar="PAIR,PAIR", help=f"any of {', '.join(PAIRS)} (default: en-de)"
    )
    parser.add_argument(
        "--without", default="", metavar="NAME,NAME", help="archives to leave out, such as training-giga-fren.tar"
    )
    parser.add_argument("--remove-diacritics", action="store_true", help=romanian.REMOVE_DIACRITICS)
    options = parser.parse_args(arguments)

    def work() -> None:
        pairs = names_of("--pairs", options.pairs)
        if unknown := [pair for pair in pairs if pair not in PAIRS]:
            raise UserError(f"--pairs: unknown {', '.join(map(repr, unknown))}; valid: {', '.join(PAIRS)}")
        if options.remove_diacritics and not any(romanian.LANGUAGE in pair.split("-") for pair in pairs):
            raise UserError(f"--remove-diacritics: no pair of --pairs {options.pairs} has Romanian text")
        without = names_of("--without", options.without) if options.without else []
        build(options.destination, pairs, options.remove_diacritics, without)

    return run(work, options.destination, "wmt: ")
