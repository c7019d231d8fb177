"""Scores of tagging from the files that fairseq-validate wrote with ``--predictions-to``.

Prints one JSON line: F1 of spans as in seqeval, accuracy of words, and, as `majority`, the accuracy of always
predicting the most frequent tag. Averages are printed only if no language is missing.
"""

import json
import sys

from fairseq_xl.evaluation.by_language import argument_parser, score_languages
from fairseq_xl.evaluation.spans import SCHEME, read_tags, score


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    options = argument_parser("tagging", __doc__, "SPLIT.LANGUAGE.tsv").parse_args(arguments)
    averaged, metric = ("f1", "accuracy", "majority"), f"metric:span-f1|{SCHEME}"
    result = score_languages(options, "tsv", lambda path, _: score(*read_tags(path)), averaged, metric)
    sys.stdout.write(json.dumps(result) + "\n")
