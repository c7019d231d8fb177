"""Scores of ranking from the files that fairseq-validate wrote with ``--predictions-to``.

Prints one JSON line: nDCG with gains of 2^relevance - 1 over all ranks, and, as `chance`, that of equal scores. Queries
without a relevant text are left out. Averages appear only over a complete set of languages.
"""

import json
import sys

from fairseq_xl.evaluation.by_language import parser, scored
from fairseq_xl.evaluation.ranking import read_scores, score


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    options = parser("ranking", __doc__, "SPLIT.LANGUAGE.tsv").parse_args(arguments)
    result = scored(options, "tsv", lambda path, _: score(read_scores(path)), ("ndcg", "chance"))
    sys.stdout.write(json.dumps(result) + "\n")
