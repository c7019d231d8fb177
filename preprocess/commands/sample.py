"""Writes the sample, a small synthetic corpus in four languages.

    fairseq-xl data sample corpora/sample

They are English, German, French and Spanish.
"""

import logging

from fairseq_xl.commands import parser_of
from fairseq_xl.errors import natural_number, positive_integer
from preprocess.sample.corpus import write

logger = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> None:
    """Command line; a wrong value is reported by argparse."""
    parser = parser_of(__name__)
    parser.add_argument("destination", metavar="DEST", help="folder to write to")
    parser.add_argument(
        "--documents",
        action=positive_integer,
        default=2400,
        help="training documents of the bitext (default 2400)",
    )
    parser.add_argument("--seed", action=natural_number, default=1, help="another seed, another corpus (default 1)")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        write(options.destination, options.documents, options.seed)
    except ValueError as error:
        parser.error(str(error))
    except OSError as error:
        parser.error(f"{error.filename or options.destination}: {error.strerror}")
    logger.info("Wrote the sample corpus to %s", options.destination)
