"""Scores of any task type from the files that fairseq-validate wrote with ``--predictions-to``.

    fairseq-xl score labelled similarity runs/my/similarity/predictions --langs en,de

Prints the metrics that validation logs, with 95 % bootstrap intervals. The types of this package have commands of their
own, with more scores.
"""

from functools import partial
from typing import Any

from fairseq_xl import register
from fairseq_xl.commands import Options, argument, command, files_by_language
from fairseq_xl.evaluation.by_language import score_languages


@command(
    argument("type", "the task type, such as similarity for --task xl_similarity"),
    *files_by_language("SPLIT.LANGUAGE files"),
)
def main(options: Options) -> dict[str, Any]:
    register()
    from fairseq_xl.inference.task_types import file_reader, score

    objective = file_reader(options.type)
    names = list(objective.metrics())
    metric = f"metric:{'+'.join(names)}|type:{options.type}"
    return score_languages(options, options.type, objective.suffix, partial(score, objective), names, metric)
