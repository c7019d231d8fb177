"""Writes a published model's dictionary, for ``fairseq-preprocess --srcdict`` and ``python -m preprocess --dict``."""

import argparse

from fairseq_xl.checkpoints import published_models
from fairseq_xl.errors import UserError, language_codes


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser("fairseq-xl dictionary", description=__doc__)
    parser.add_argument("model", metavar="MODEL", help="the published model: its file of weights, or its folder")
    parser.add_argument("output", metavar="DICT", help="the dict.txt to write")
    parser.add_argument("--langs", help="languages, separated by commas (default: those of its language embeddings)")
    options = parser.parse_args(arguments)
    model = published_models.read(options.model)
    if not isinstance(model, published_models.Published):
        raise UserError(f"{options.model} is not a published model: expected a file of weights or its folder")
    languages = language_codes("--langs", options.langs) if options.langs else model.languages
    model.write_dictionary(options.output, languages)
