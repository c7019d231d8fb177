"""Scores of ranking from the files that fairseq-validate wrote with ``--predictions-to``.

    fairseq-xl score ranking runs/my/wpr/predictions --langs en,de

Prints nDCG over all ranks, and, as `chance`, the nDCG of equal scores. Queries of a single text are left out.
"""

from pathlib import Path
from typing import Any

from fairseq_xl.commands import Options, argument, command, files_by_language
from fairseq_xl.evaluation.by_language import score_languages
from fairseq_xl.evaluation.ranking_scores import GAINS, read_scores, score


@command(
    *files_by_language("SPLIT.LANGUAGE.tsv"),
    argument("--gain", "linear: the relevance; exponential: 2^relevance - 1", default="linear", choices=GAINS),
)
def main(options: Options) -> dict[str, Any]:
    def scores(path: Path, _: str) -> dict[str, Any]:
        return score(read_scores(path).values(), path, options.gain)

    metric = f"metric:ndcg|gain:{options.gain}"
    return score_languages(options, "ranking", "tsv", scores, ("ndcg", "chance"), metric)
