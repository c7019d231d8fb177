"""BLEU and chrF of translations that fairseq-generate wrote.

    fairseq-xl score bleu runs/my/en-de/generate-test.txt corpora/my/bitext/test.en-de.de --lang de
    fairseq-xl score bleu --plain txt/system-outputs txt/references

Prints sacreBLEU of detokenized text, with its signature and a tokenizer that depends on the language; chrF; and BLEU of
Moses-tokenized text, case-insensitive and with case, which means nothing for languages written without spaces. With
--against OTHER it compares the hypotheses with those of another system by sacreBLEU's paired bootstrap. Of folders as
in WMT's releases, with --plain, it prints BLEU and chrF of each system, unrounded, against each reference and all; its
tokenizers are those of the scores that WMT publishes: zh, characters for Japanese, otherwise 13a.
"""

import logging
from pathlib import Path
from typing import Any

from sacrebleu.metrics.bleu import BLEU

from fairseq_xl.commands import RESAMPLES, Options, argument, command, flag
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation import bleu
from fairseq_xl.io.files import write_lines
from fairseq_xl.io.lines import read_lines

logger = logging.getLogger(__name__)


@command(
    argument(
        "generated",
        "output of fairseq-generate; with --plain a file of hypotheses, or a folder: TEST.XX-YY.hyp.NAME.YY",
    ),
    argument("reference", "raw reference text, one line per test line, or a folder: TEST.XX-YY.ref.NAME.YY", nargs="+"),
    flag("--plain", "GENERATED has one hypothesis per line"),
    argument("--lang", "target language, which chooses the tokenizers"),
    argument("--tokenize", "sacreBLEU's tokenizer (default: the language's)", choices=BLEU.TOKENIZERS),
    argument("--bootstrap", "resamples for the 95 %% interval; 0: none (default: 1000)", RESAMPLES),
    argument("--against", "output of another system for the same lines, in the form of GENERATED"),
    argument("--save-hypotheses", "write the hypotheses to this file, one per line", metavar="FILE"),
)
def main(options: Options) -> dict[str, Any]:
    if Path(options.generated).is_dir():
        alone = (options.lang, options.tokenize, options.against, options.save_hypotheses)
        if not options.plain or any(alone) or options.bootstrap is not None or len(options.reference) > 1:
            raise UserError(
                f"{options.generated} is a folder: expected --plain, one folder of references, and none of --lang, "
                "--tokenize, --bootstrap, --against and --save-hypotheses"
            )
        return bleu.wmt_scores(options.generated, options.reference[0])
    if not options.lang and not options.tokenize:
        raise UserError(
            "--lang or --tokenize is needed: name the target language, such as --lang zh, which chooses sacreBLEU's "
            "tokenizer"
        )
    systems = []
    for path in filter(None, (options.generated, options.against)):
        hypotheses, references = (_plain_pair if options.plain else bleu.read_pair)(path, options.reference[0])
        systems.append(hypotheses)
    hypotheses = systems[0]
    if options.against and options.bootstrap == 0:
        raise UserError("--against needs resamples: --bootstrap 0 must be 1 or more")
    if options.save_hypotheses:
        write_lines(options.save_hypotheses, hypotheses)
    tokenizer = options.tokenize or bleu.tokenizer_name(options.lang)
    if not options.tokenize and bleu.primary_code(options.lang) not in bleu.LANGUAGES:
        remark = "for words separated by spaces; --tokenize names another"
        logger.warning(
            "--lang %s is not an ISO 639-1 code: sacreBLEU's tokenizer is %s, %s", options.lang, tokenizer, remark
        )
    bootstrap = 1000 if options.bootstrap is None else options.bootstrap
    further = [read_lines(path) for path in options.reference[1:]]
    scores = bleu.bleu(hypotheses, references, tokenize=tokenizer, bootstrap=bootstrap, further=further)
    result = {"sacrebleu": scores, "chrf": bleu.chrf(hypotheses, references, bootstrap, further)}
    if options.lang:
        result |= bleu.tokenized_bleu(hypotheses, references, options.lang, further)
    if options.against:
        result["paired"] = bleu.paired(hypotheses, systems[1], references, tokenizer, bootstrap, further)
    return result | {"lines": len(hypotheses)}


def _plain_pair(generated: str, reference: str) -> tuple[list[str], list[str]]:
    hypotheses, references = read_lines(generated), read_lines(reference)
    if not hypotheses or len(hypotheses) != len(references):
        raise UserError(f"{generated}: {len(hypotheses)} hypotheses but {len(references)} references in {reference}")
    return hypotheses, references
