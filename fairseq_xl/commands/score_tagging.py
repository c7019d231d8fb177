"""Scores of tagging from the files that fairseq-validate wrote with ``--predictions-to``.

Prints one JSON line: F1 of spans, as seqeval computes it, accuracy of words, and that of the most frequent tag.
Averages are printed only if no language is missing.
"""

import json
import sys

from fairseq_xl.evaluation.by_language import parser, scored
from fairseq_xl.evaluation.spans import read_tags, score


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    options = parser("tagging", __doc__, "SPLIT.LANGUAGE.tsv").parse_args(arguments)
    result = scored(options, "tsv", lambda path, _: score(*read_tags(path)), ("f1", "accuracy", "majority"))
    sys.stdout.write(json.dumps(result) + "\n")
