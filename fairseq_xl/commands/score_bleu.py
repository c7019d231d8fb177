"""BLEU and chrF of translations that fairseq-generate wrote.

    fairseq-xl score bleu runs/my/en-de/generate-test.txt corpora/my/bitext/test.en-de.de --language de

Prints sacreBLEU of detokenized text, with its signature and a tokenizer that depends on the language; chrF; and BLEU of
Moses-tokenized text, case-insensitive and with case, which means nothing for languages written without spaces. With
--against OTHER it compares the hypotheses with those of another system by sacreBLEU's paired bootstrap.
"""

import logging
from typing import Any

from sacrebleu.metrics.bleu import BLEU

from fairseq_xl.commands import BOOTSTRAP, Options, argument, command, flag
from fairseq_xl.errors import UserError
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
from fairseq_xl.io.files import write_lines
from fairseq_xl.io.lines import read_lines

logger = logging.getLogger(__name__)


@command(
    argument("generated", "output of fairseq-generate, or with --plain a file of hypotheses"),
    argument("reference", "raw reference text, one line per test line"),
    flag("--plain", "GENERATED has one hypothesis per line"),
    argument("--language", "target language, which chooses the tokenizers"),
    argument("--tokenize", "sacreBLEU's tokenizer (default: the language's)", choices=BLEU.TOKENIZERS),
    BOOTSTRAP,
    argument("--against", "output of another system for the same lines, in the form of GENERATED"),
    argument("--save", "write the hypotheses to this file, one per line"),
)
def main(options: Options) -> dict[str, Any]:
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
        result["paired"] = paired(hypotheses, systems[1], references, tokenizer, options.bootstrap)
    return result | {"lines": len(hypotheses)}


def _plain_pair(generated: str, reference: str) -> tuple[list[str], list[str]]:
    hypotheses, references = read_lines(generated), read_lines(reference)
    if not hypotheses or len(hypotheses) != len(references):
        raise UserError(f"{generated}: {len(hypotheses)} hypotheses but {len(references)} references in {reference}")
    return hypotheses, references
