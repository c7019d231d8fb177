"""Reads the monolingual text of Wikipedia.

    fairseq-xl data read wikipedia corpora/wikipedia en=enwiki-latest-pages-articles.xml.bz2 --workers 8

It is in dumps, or in the output of wikiextractor.
"""

from pathlib import Path

from fairseq_xl.commands import parser_of
from fairseq_xl.errors import LANGUAGE, UserError, check_number
from fairseq_xl.io import bounds
from preprocess.commands import run
from preprocess.readers.wikipedia.corpus import build


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    parser = parser_of(__name__)
    parser.add_argument("destination", metavar="DEST", type=Path, help="folder to write")
    parser.add_argument(
        "sources",
        metavar="XX=SOURCE",
        nargs="+",
        help="language, and a dump (.xml, .xml.bz2, .xml.gz) or a file or folder of wikiextractor's output; "
        "a language may have several",
    )
    parser.add_argument(
        "--held-out",
        type=int,
        default=500,
        metavar="N",
        help="documents of each language for validation (default: 500; at most a tenth of all)",
    )
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes for dumps (default: 1)")
    parser.add_argument("--sentences", action="store_true", help="write a sentence a line, in place of a paragraph")
    options = parser.parse_args(arguments)

    def work() -> None:
        check_number("--held-out", options.held_out, "1 or more")
        check_number("--workers", options.workers, "1 or more", bounds.MOST_PROCESSES)
        build(options.destination, _sources(options.sources), options.held_out, options.workers, options.sentences)

    return run(work, options.destination, "wikipedia: ")


def _sources(arguments: list[str]) -> dict[str, list[Path]]:
    """Returns paths by language; raises UserError for an argument that is not XX=SOURCE."""
    sources = {}
    for argument in arguments:
        language, _, path = argument.partition("=")
        if not LANGUAGE.fullmatch(language) or not path:
            raise UserError(f"expected XX=SOURCE such as en=enwiki.xml.bz2, found {argument!r}")
        sources.setdefault(language, []).append(Path(path))
    return sources
