"""python -m preprocess.sample DEST: write the sample corpus."""

import argparse
import logging

from preprocess.sample.corpus import write

logger = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> None:
    """Command line; a wrong value is reported by argparse."""
    parser = argparse.ArgumentParser(
        prog="python -m preprocess.sample",
        description="Write a small synthetic corpus in English, German, French and Spanish.",
    )
    parser.add_argument("destination", metavar="DEST", help="folder to write to")
    parser.add_argument("--documents", type=int, default=2400, help="training documents of the bitext (default 2400)")
    parser.add_argument("--seed", type=int, default=1, help="another seed gives another corpus (default 1)")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        write(options.destination, options.documents, options.seed)
    except ValueError as error:
        parser.error(str(error))
    except OSError as error:
        parser.error(f"{error.filename or options.destination}: {error.strerror}")
    logger.info("Wrote the sample corpus to %s", options.destination)


if __name__ == "__main__":
    main()
