"""BLEU and chrF of translations that fairseq-generate wrote.

Prints one JSON line: sacreBLEU of detokenized text, with its signature and a tokenizer that depends on the language;
chrF; and BLEU of Moses-tokenized text, case-insensitive and with case, which means nothing for languages written
without spaces. With --against OTHER it compares the hypotheses with those of another system by sacreBLEU's paired
bootstrap.
"""

import argparse
import json
import logging
import sys

from sacrebleu.metrics import BLEU

from fairseq_xl.errors import UserError, in_range
from fairseq_xl.evaluation.bleu import (
    LANGUAGES,
    bleu,
    chrf,
    paired,
    primary_code,
    read_pair,
    tokenized_bleu,
    tokenizer_name,
)
from fairseq_xl.io import bounds
from fairseq_xl.io.files import write_lines
from fairseq_xl.io.lines import read_lines

logger = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    options = _parser().parse_args(arguments)
    if not options.language and not options.tokenize:
        raise UserError(
            "--language or --tokenize is needed: name the target language, such as --language zh, which "
            "chooses sacreBLEU's tokenizer"
        )
    systems = []
    for path in filter(None, (options.generated, options.against)):
        hypotheses, references = (_plain_pair if options.plain else read_pair)(path, options.reference)
        systems.append(hypotheses)
    hypotheses = systems[0]
    if options.against and options.bootstrap < 1:
        raise UserError(f"--against needs resamples: --bootstrap {options.bootstrap} must be 1 or more")
    if options.save:
        write_lines(options.save, hypotheses)
    tokenizer = options.tokenize or tokenizer_name(options.language)
    if not options.tokenize and primary_code(options.language) not in LANGUAGES:
        logger.warning(
            "--language %s is not an ISO 639-1 code: sacreBLEU's tokenizer is %s, for words separated "
            "by spaces; --tokenize names another",
            options.language,
            tokenizer,
        )
    result = {"sacrebleu": bleu(hypotheses, references, tokenize=tokenizer, bootstrap=options.bootstrap)}
    result["chrf"] = chrf(hypotheses, references, options.bootstrap)
    if options.language:
        result |= tokenized_bleu(hypotheses, references, options.language)
    if options.against:
        result["paired"] = paired(*systems, references, tokenizer, options.bootstrap)
    sys.stdout.write(json.dumps(result | {"lines": len(hypotheses)}) + "\n")


def _plain_pair(generated: str, reference: str) -> tuple[list[str], list[str]]:
    """The lines of two files; raises `UserError` for different numbers of lines, and for empty files."""
    hypotheses, references = read_lines(generated), read_lines(reference)
    if not hypotheses or len(hypotheses) != len(references):
        raise UserError(f"{generated}: {len(hypotheses)} hypotheses but {len(references)} references in {reference}")
    return hypotheses, references


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("fairseq-xl score bleu", description=__doc__)
    parser.add_argument("generated", help="output of fairseq-generate, or with --plain a file of hypotheses")
    parser.add_argument("reference", help="raw reference text, one line per test line")
    parser.add_argument("--plain", action="store_true", help="GENERATED has one hypothesis per line")
    parser.add_argument("--language", help="target language, which chooses the tokenizers")
    parser.add_argument(
        "--tokenize",
        choices=BLEU.TOKENIZERS,
        help="sacreBLEU's tokenizer; by default the language's; tokenized BLEU needs --language",
    )
    parser.add_argument(
        "--bootstrap",
        action=in_range(int, "0 or more", bounds.MOST_RESAMPLES),
        default=1000,
        help="resamples for the 95 %% interval; 0: none",
    )
    parser.add_argument("--against", help="output of another system for the same lines, in the form of GENERATED")
    parser.add_argument("--save", help="write the hypotheses to this file, one per line")
    return parser
