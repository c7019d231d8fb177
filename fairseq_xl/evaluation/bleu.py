"""BLEU of what fairseq-generate wrote: ``python -m fairseq_xl.evaluation.bleu GENERATED REFERENCE``.

Prints one JSON line: detokenised sacreBLEU with its signature, and tokenised BLEU (Moses, case-insensitive, V13).
"""

import argparse
import json
import sys
from pathlib import Path

from sacrebleu.metrics import BLEU

from fairseq_xl import compat
from fairseq_xl.errors import UserError


def read_lines(path):
    """Lines of a UTF-8 file, split at newlines only; `UserError` for a missing or ill-encoded file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8: {error}") from None
    return text.removesuffix("\n").split("\n") if text else []


def detokenised(path):
    """Best hypotheses of a fairseq-generate output (its ``D-`` lines) in the order of the test lines.

    Raises `UserError` unless every test line has exactly one.
    """
    best = {}
    for line in read_lines(path):
        if line.startswith("D-"):
            number, _, text = line[2:].split("\t", 2)
            best.setdefault(int(number), text)
    if not best or sorted(best) != list(range(len(best))):
        raise UserError(
            f"{path}: expected one D- line for each test line, found {len(best)} of {max(best, default=-1) + 1}"
        )
    return [best[number] for number in range(len(best))]


def bleu(hypotheses, references, lowercase=False, tokenize="13a", bootstrap=0):
    """Corpus BLEU of n hypotheses against n references.

    Returns: {"score", "signature"} and, with `bootstrap` resamples, "interval": half the width at 95 %.
    """
    if len(hypotheses) != len(references):
        raise UserError(f"{len(hypotheses)} hypotheses but {len(references)} references")
    metric = BLEU(lowercase=lowercase, tokenize=tokenize, force=True)
    score = metric.corpus_score(hypotheses, [references], n_bootstrap=bootstrap or 1)
    result = {"score": round(score.score, 2), "signature": str(metric.get_signature())}
    return result | ({"interval": round(score._ci, 2)} if bootstrap else {})


def tokenised_bleu(hypotheses, references, language):
    """Case-insensitive BLEU of Moses-tokenised text (V13): {"score", "signature", "tokeniser"}.

    Raises `UserError` where sacremoses is not installed.
    """
    try:
        from sacremoses import MosesTokenizer
    except ImportError:
        raise UserError("tokenised BLEU needs the package sacremoses: pip install sacremoses") from None
    moses = MosesTokenizer(lang=language)
    sides = [
        [moses.tokenize(line, return_str=True, escape=False) for line in side] for side in (hypotheses, references)
    ]
    tokeniser = f"sacremoses {compat.versions()['sacremoses']} {language}"
    return bleu(*sides, lowercase=True, tokenize="none") | {"tokeniser": tokeniser}


def main(arguments=None):
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m fairseq_xl.evaluation.bleu", description=__doc__)
    parser.add_argument("generated", help="output of fairseq-generate, or with --plain a file of hypotheses")
    parser.add_argument("reference", help="raw reference text, one line a test line")
    parser.add_argument("--plain", action="store_true", help="GENERATED holds a hypothesis a line")
    parser.add_argument("--language", default="en", help="target language, for the Moses tokeniser")
    parser.add_argument("--bootstrap", type=int, default=1000, help="resamples for the 95 %% interval; 0: none")
    parser.add_argument("--save", help="write the hypotheses there, one a line")
    options = parser.parse_args(arguments)
    hypotheses = read_lines(options.generated) if options.plain else detokenised(options.generated)
    references = read_lines(options.reference)
    if options.save:
        Path(options.save).write_text("".join(f"{line}\n" for line in hypotheses), encoding="utf-8")
    result = {"sacrebleu": bleu(hypotheses, references, bootstrap=options.bootstrap)}
    result["tokenised"] = tokenised_bleu(hypotheses, references, options.language)
    sys.stdout.write(json.dumps(result | {"lines": len(hypotheses)}) + "\n")


if __name__ == "__main__":
    main()
