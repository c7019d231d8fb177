"""Scores of ranking from the files that fairseq-validate wrote with ``--predictions-to``.

Prints one JSON line: nDCG over all ranks, and, as `chance`, the nDCG of equal scores. Queries of a single text are left
out. Averages are printed only if no language is missing.
"""

import json
import sys
from pathlib import Path
from typing import Any

from fairseq_xl.evaluation.by_language import argument_parser, score_languages
from fairseq_xl.evaluation.ranking_scores import GAINS, read_scores, score


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    parser = argument_parser("ranking", __doc__, "SPLIT.LANGUAGE.tsv")
    parser.add_argument(
        "--gain", choices=GAINS, default="linear", help="linear: the relevance; exponential: 2^relevance - 1"
    )
    options = parser.parse_args(arguments)

    def scores(path: Path, _: str) -> dict[str, Any]:
        return score(read_scores(path).values(), path, options.gain)

    result = score_languages(options, "tsv", scores, ("ndcg", "chance"), f"metric:ndcg|gain:{options.gain}")
    sys.stdout.write(json.dumps(result) + "\n")
