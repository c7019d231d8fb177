"""Reads LibreOffice help: parallel pages, and tasks made from them.

    fairseq-xl data read libreoffice-help corpora/help --langs en,de,fr

An interrupted run is resumed.
"""

from pathlib import Path

from fairseq_xl.commands import parser_of
from fairseq_xl.errors import UserError
from preprocess.commands import run
from preprocess.readers.libreoffice_help.corpus import build
from preprocess.readers.libreoffice_help.languages import LANGUAGES, parse_languages, parse_pairs


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    parser = parser_of(__name__)
    parser.add_argument("destination", metavar="DEST", type=Path, help="folder to write; an interrupted run is resumed")
    parser.add_argument(
        "--langs",
        default="en,de,fr",
        metavar="XX,YY",
        help=f"languages, English always among them (default: en,de,fr; there are {','.join(LANGUAGES)})",
    )
    parser.add_argument(
        "--pairs",
        default="",
        metavar="XX-YY,…",
        help="also write bitext of these pairs without English, de-fr,ru-zh, or all: paragraphs that both translate",
    )
    parser.add_argument(
        "--packages",
        type=Path,
        metavar="FOLDER",
        help="folder with libreoffice-help-*.deb (default: fetch them with apt-get)",
    )
    options = parser.parse_args(arguments)

    def work() -> None:
        if options.packages and not options.packages.is_dir():
            raise UserError(f"--packages: there is no folder {options.packages}")
        languages = parse_languages(options.langs)
        build(options.destination, languages, options.packages, parse_pairs(options.pairs, languages))

    return run(work, options.destination, "libreoffice_help: ")
