"""Scores of generated text by language (Liang et al. 2020, table 12).

    fairseq-xl score generation runs/my/ntg/outputs --references corpora/my/tasks/ntg --langs en,de

FOLDER/XX holds what fairseq-generate wrote for the language XX with ``--results-path FOLDER/XX``. Prints for each
language sacreBLEU, cased and lower-cased, ROUGE-L and the share of outputs in a wrong language, and their averages.
"""

from pathlib import Path
from typing import Any

from fairseq_xl.commands import BOOTSTRAP, Options, argument, command, flag
from fairseq_xl.errors import UserError, language_codes
from fairseq_xl.evaluation.bleu import primary_code, read_pair
from fairseq_xl.evaluation.generation_scores import averages, score
from fairseq_xl.evaluation.prediction_folders import check_same_origin
from fairseq_xl.io.lines import read_lines


@command(
    argument("folder", "folder of XX/generate-SPLIT.txt"),
    argument("--references", "folder of SPLIT.XX.tgt, raw text, one line per test line", required=True),
    argument("--split", "split", default="test"),
    argument("--langs", "languages to score, with averages if none is missing", required=True),
    argument("--among", "languages that an output may be identified as (default: --langs and en), separated by commas"),
    flag("--copy", "also score the sources, SPLIT.XX.src, as outputs"),
    BOOTSTRAP,
)
def main(options: Options) -> dict[str, Any]:
    languages, references = language_codes("--langs", options.langs), Path(options.references)
    candidates = language_codes("--among", options.among) if options.among else [*languages, "en"]
    if options.among and len({primary_code(code) for code in (*candidates, *languages)}) < 2:
        raise UserError(f"--among {options.among}: expected two languages or more")
    files = {code: Path(options.folder) / code / f"generate-{options.split}.txt" for code in languages}
    result: dict[str, Any] = {"languages": {}, "missing": [code for code, path in files.items() if not path.is_file()]}
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
    return result
