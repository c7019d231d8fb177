"""Scores of classification from the files that fairseq-validate wrote with ``--predictions-to``.

    fairseq-xl score classification runs/my/nc/predictions --langs en,de,fr

With --against OTHER it compares with the predictions of another classifier, line by line.
"""

from pathlib import Path
from typing import Any

from fairseq_xl.commands import Options, argument, command, files_by_language
from fairseq_xl.evaluation.by_language import score_languages
from fairseq_xl.evaluation.classification_scores import compare, read_predictions, score
from fairseq_xl.evaluation.prediction_folders import check_predictions


@command(
    *files_by_language("SPLIT.LANGUAGE.tsv"),
    argument("--against", "folder of another classifier's predictions, for McNemar's exact test"),
)
def main(options: Options) -> dict[str, Any]:
    def scores(path: Path, _: str) -> dict[str, Any]:
        if not options.against:
            return score(*read_predictions(path))
        against = Path(options.against) / path.name
        check_predictions(against, ["classification"])
        return score(*read_predictions(path)) | {"paired": compare(path, against)}

    averaged = ("accuracy", "macro_f1", "majority")
    return score_languages(options, "classification", "tsv", scores, averaged, "metric:accuracy")
