"""Parses the arguments SPLIT.XX=FILE of readers."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fairseq_xl.errors import UserError, check_language
from preprocess.config import SPLITS


class FileArgument(NamedTuple):
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


def read_file_arguments(arguments: Sequence[str]) -> Iterator[FileArgument]:
    """Parses the arguments; raises UserError for another syntax, and for a split and language named twice."""
    seen = set()
    for argument in arguments:
        key, _, path = argument.partition("=")
        split, _, codes = key.partition(".")
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
        yield FileArgument(split, languages, Path(path))
