"""Arguments SPLIT.XX=FILE of readers that take files of any names."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fairseq_xl.errors import UserError, check_language
from preprocess.config import SPLITS


class Named(NamedTuple):
    """A file, with its split and languages."""

    split: str
    languages: tuple[str, ...]
    path: Path


def add_arguments(parser: argparse.ArgumentParser, metavar: str) -> None:
    """Adds DEST and the files."""
    parser.add_argument("destination", metavar="DEST", type=Path, help="folder to write")
    parser.add_argument(
        "files", metavar=metavar, nargs="+", help=f"split ({', '.join(SPLITS)}), language, and file, compressed or not"
    )


def named_files(arguments: Sequence[str]) -> Iterator[Named]:
    """Yields the files; raises UserError for an argument of another form, and for a split and language named twice."""
    seen = set()
    for argument in arguments:
        place, _, path = argument.partition("=")
        split, _, codes = place.partition(".")
        languages = tuple(codes.split(","))
        if split not in SPLITS or not path:
            raise UserError(
                f"expected SPLIT.XX=FILE such as train.en=FILE, with {', '.join(SPLITS)}; found {argument!r}"
            )
        for language in languages:
            check_language(argument, language)
            if (split, language) in seen:
                raise UserError(f"{split}.{language} is named twice")
            seen.add((split, language))
        yield Named(split, languages, Path(path))
