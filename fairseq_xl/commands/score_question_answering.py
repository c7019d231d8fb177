"""Scores of answers from the files that fairseq-validate wrote with ``--predictions-to``.

    fairseq-xl score question-answering runs/my/qa/predictions --references corpora/my/tasks/qa --langs en,de

Prints exact match and F1 as SQuAD's program computes them, or MLQA's.
"""

import os
from pathlib import Path
from typing import Any

from fairseq_xl.commands import Options, argument, command, files_by_language, several
from fairseq_xl.errors import UserError, named_values
from fairseq_xl.evaluation.benchmarks import answer_scores
from fairseq_xl.evaluation.by_language import score_languages
from fairseq_xl.evaluation.question_answering_scores import NORMALIZATIONS
from fairseq_xl.io.compressed import stored


@command(
    *files_by_language("SPLIT.LANGUAGE.json, {id: answer}"),
    argument(
        "--references",
        "folder of SPLIT.LANGUAGE.json in SQuAD's format; several, separated by ':', are searched in order",
        required=True,
    ),
    several("--reference-file", "a file of references in place of that in --references", "XX=FILE", "append"),
    argument("--normalization", "whose program's comparison of answers", default="squad", choices=NORMALIZATIONS),
)
def main(options: Options) -> dict[str, Any]:
    reference_files = named_values("--reference-file", options.reference_file, "XX=FILE, a language and its file")
    for language in reference_files.keys() - {*options.langs.split(",")}:
        raise UserError(f"--reference-file: {language} is not in --langs {options.langs}")

    def scores(path: Path, language: str) -> dict[str, Any]:
        candidates = [Path(folder) / path.name for folder in options.references.split(os.pathsep)]
        files = [stored(reference_files[language])] if language in reference_files else [*map(stored, candidates)]
        references = next((file for file in files if file.is_file()), files[0])
        return answer_scores(path, references, language, options.normalization)

    metric = f"metric:f1+em|norm:{options.normalization}"
    result = score_languages(options, "question_answering", "json", scores, ("exact_match", "f1"), metric)
    return result | {"normalization": options.normalization}
