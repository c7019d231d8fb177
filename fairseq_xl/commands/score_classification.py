"""Scores of classification from the files that fairseq-validate wrote with ``--predictions-to``.

Prints one JSON line; averages appear only over a complete set of languages. With --against OTHER it compares with the
predictions of another classifier, line by line.
"""

import argparse
import json
import sys
from pathlib import Path

from fairseq_xl.errors import UserError, names_of
from fairseq_xl.evaluation.classification import compare, read_predictions, score


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser("fairseq-xl score classification", description=__doc__)
    parser.add_argument("folder", help="folder of SPLIT.LANGUAGE.tsv prediction files")
    parser.add_argument("--split", default="test", help="split (default: test)")
    parser.add_argument("--langs", required=True, help="languages to score and average, separated by commas")
    parser.add_argument("--against", help="folder of another classifier's predictions, for McNemar's exact test")
    options = parser.parse_args(arguments)
    files = {
        language: Path(options.folder) / f"{options.split}.{language}.tsv"
        for language in names_of("--langs", options.langs)
    }
    scores = {language: score(*read_predictions(path)) for language, path in files.items() if path.is_file()}
    if not scores:
        raise UserError(f"{options.folder}: no prediction file {options.split}.LANGUAGE.tsv of {options.langs}")
    if options.against:
        for language, entry in scores.items():
            entry["paired"] = compare(files[language], Path(options.against) / files[language].name)
    result = {"languages": scores, "missing": [language for language in files if language not in scores]}
    if not result["missing"]:
        for name in ("accuracy", "macro_f1", "majority"):
            result[name] = round(sum(entry[name] for entry in scores.values()) / len(scores), 2)
    sys.stdout.write(json.dumps(result) + "\n")
