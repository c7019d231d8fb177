"""Scores of tagging from the files that fairseq-validate wrote with ``--predictions-to``.

    fairseq-xl score tagging runs/my/ner/predictions --langs en,de,fr

Prints F1 of spans as in seqeval, accuracy of words, and, as `majority`, the accuracy of always predicting the most
frequent tag.
"""

from typing import Any

from fairseq_xl.commands import Options, command, files_by_language
from fairseq_xl.evaluation.by_language import score_languages
from fairseq_xl.evaluation.spans import SCHEME, read_tags, score


@command(*files_by_language("SPLIT.LANGUAGE.tsv"))
def main(options: Options) -> dict[str, Any]:
    averaged, metric = ("f1", "accuracy", "majority"), f"metric:span-f1|{SCHEME}"
    return score_languages(options, "tagging", "tsv", lambda path, _: score(*read_tags(path)), averaged, metric)
