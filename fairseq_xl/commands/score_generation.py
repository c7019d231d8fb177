"""Scores of generated text by language (Liang et al. 2020, table 12).

FOLDER/XX holds what fairseq-generate wrote for the language XX with ``--results-path FOLDER/XX``. Prints one JSON line:
for each language sacreBLEU, cased and lower-cased, ROUGE-L and the share of outputs in a wrong language, and their
averages. Averages are printed only if no language is missing.
"""

import argparse
import json
import sys
from pathlib import Path

from fairseq_xl.errors import UserError, in_range, language_codes
from fairseq_xl.evaluation.bleu import primary_code, read_pair
from fairseq_xl.evaluation.generation_scores import averages, score
from fairseq_xl.evaluation.prediction_folders import check_same_origin
from fairseq_xl.io import bounds
from fairseq_xl.io.lines import read_lines


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    options = _parser().parse_args(arguments)
    languages, references = language_codes("--langs", options.langs), Path(options.references)
    candidates = language_codes("--among", options.among) if options.among else [*languages, "en"]
    if options.among and len({primary_code(code) for code in (*candidates, *languages)}) < 2:
        raise UserError(f"--among {options.among}: expected two languages or more")
    files = {code: Path(options.folder) / code / f"generate-{options.split}.txt" for code in languages}
    result = {"languages": {}, "missing": [code for code, path in files.items() if not path.is_file()]}
    check_same_origin(path for path in files.values() if path.is_file())
    if options.copy:
        result["copy"] = {"languages": {}}
    for code, path in files.items():
        if code in result["missing"]:
            continue
        hypotheses, expected = read_pair(path, references / f"{options.split}.{code}.tgt")
        result["languages"][code] = score(hypotheses, expected, code, candidates, options.bootstrap)
        if options.copy:
            sources = read_lines(references / f"{options.split}.{code}.src")
            result["copy"]["languages"][code] = score(sources, expected, code, candidates, options.bootstrap)
    if not result["languages"]:
        raise UserError(f"{options.folder}: no output XX/generate-{options.split}.txt of {options.langs}")
    for scores in [result, *([result["copy"]] if options.copy else [])]:
        if not result["missing"]:
            scores["average"] = averages(scores["languages"])
    sys.stdout.write(json.dumps(result) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("fairseq-xl score generation", description=__doc__)
    parser.add_argument("folder", help="folder of XX/generate-SPLIT.txt")
    parser.add_argument("--references", required=True, help="folder of SPLIT.XX.tgt, raw text, one line per test line")
    parser.add_argument("--split", default="test", help="split (default: test)")
    parser.add_argument("--langs", required=True, help="languages to score and average, separated by commas")
    parser.add_argument(
        "--among", help="languages that an output may be identified as (default: --langs and en), separated by commas"
    )
    parser.add_argument("--copy", action="store_true", help="also score the sources, SPLIT.XX.src, as outputs")
    parser.add_argument(
        "--bootstrap",
        action=in_range(int, "0 or more", bounds.MOST_RESAMPLES),
        default=1000,
        help="resamples for the 95 %% intervals; 0: none",
    )
    return parser
