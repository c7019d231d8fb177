"""Scores of answers from the files that fairseq-validate wrote with ``--predictions-to``.

Prints one JSON line: exact match and F1 as SQuAD's program computes them, or MLQA's. Averages are printed only
if no language is missing.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.benchmarks import answer_scores
from fairseq_xl.evaluation.by_language import argument_parser, score_languages
from fairseq_xl.evaluation.question_answering_scores import NORMALIZATIONS
from fairseq_xl.io.compressed import stored


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    parser = argument_parser("question-answering", __doc__, "SPLIT.LANGUAGE.json, {id: answer}")
    parser.add_argument(
        "--references",
        required=True,
        help="folder of SPLIT.LANGUAGE.json in SQuAD's format; several, separated by ':', are searched in order",
    )
    parser.add_argument(
        "--reference-file",
        action="append",
        default=[],
        metavar="XX=FILE",
        help="a file with the references of a language, in place of that in --references: a translated test file",
    )
    parser.add_argument(
        "--normalization",
        choices=NORMALIZATIONS,
        default="squad",
        help="how answers are compared: as SQuAD's program does, or as MLQA's (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    reference_files = _files_by_language(options.reference_file, options.langs)

    def scores(path: Path, language: str) -> dict[str, Any]:
        candidates = [Path(folder) / path.name for folder in options.references.split(os.pathsep)]
        files = [stored(file) for file in reference_files.get(language, candidates)]
        references = next((file for file in files if file.is_file()), files[0])
        return answer_scores(path, references, language, options.normalization)

    metric = f"metric:f1+em|norm:{options.normalization}"
    result = score_languages(options, "json", scores, ("exact_match", "f1"), metric)
    sys.stdout.write(json.dumps(result | {"normalization": options.normalization}) + "\n")


def _files_by_language(arguments: list[str], languages: str) -> dict[str, list[Path]]:
    """XX=FILE … -> {language: [file]}; raises `UserError` for a repeated language or one not in `languages`."""
    files: dict[str, list[Path]] = {}
    for argument in arguments:
        language, _, file = argument.partition("=")
        if not language or not file:
            raise UserError(f"--reference-file {argument}: expected XX=FILE, a language and its file")
        if language in files:
            raise UserError(f"--reference-file: {language} is named twice")
        if language not in languages.split(","):
            raise UserError(f"--reference-file: {language} is not in --langs {languages}")
        files[language] = [Path(file)]
    return files
