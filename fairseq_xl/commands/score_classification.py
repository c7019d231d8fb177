"""Scores of classification from the files that fairseq-validate wrote with ``--predictions-to``.

Prints one JSON line. Averages are printed only if no language is missing. With --against OTHER it compares with the
predictions of another classifier, line by line.
"""

import json
import sys
from pathlib import Path
from typing import Any

from fairseq_xl.evaluation.by_language import argument_parser, score_languages
from fairseq_xl.evaluation.classification_scores import compare, read_predictions, score
from fairseq_xl.evaluation.prediction_folders import check_predictions


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    parser = argument_parser("classification", __doc__, "SPLIT.LANGUAGE.tsv")
    parser.add_argument("--against", help="folder of another classifier's predictions, for McNemar's exact test")
    options = parser.parse_args(arguments)

    def scores(path: Path, _: str) -> dict[str, Any]:
        if not options.against:
            return score(*read_predictions(path))
        against = Path(options.against) / path.name
        check_predictions(against, [options.task])
        return score(*read_predictions(path)) | {"paired": compare(path, against)}

    result = score_languages(options, "tsv", scores, ("accuracy", "macro_f1", "majority"), "metric:accuracy")
    sys.stdout.write(json.dumps(result) + "\n")
