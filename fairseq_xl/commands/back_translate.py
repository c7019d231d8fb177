"""Back-translates monolingual text of a language, to train translation into it on more pairs (Sennrich et al. 2016).

The checkpoint translates from TARGET into SOURCE. Writes DATA/SOURCE-TARGET/back-TARGET.SOURCE-TARGET.*, which
`xl_translation --back-translated` reads, and prints one JSON line of statistics. A stopped run continues.
"""

import argparse
import json
import sys

from fairseq_xl import register
from fairseq_xl.errors import UserError, in_range, positive_integer
from fairseq_xl.io import bounds

BEAM = 5  # our choice: the paper names none (X13)


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    options = _parser().parse_args(arguments)
    if options.sampling_topk and not options.sampling:
        raise UserError("--sampling-topk needs --sampling")
    if options.seed is not None and not options.sampling:
        raise UserError(f"--seed {options.seed}: only --sampling is random")
    if options.sampling and options.beam not in (None, 1):
        raise UserError(f"--beam {options.beam}: --sampling draws one source for each sentence, leave out --beam")
    register()
    from fairseq_xl.inference.offline_back_translation import back_translate

    generation = {"beam": options.beam or BEAM, "max_len_a": 1.3, "max_len_b": 5, "temperature": options.temperature}
    if options.sampling:
        generation |= {"sampling": True, "sampling_topk": options.sampling_topk or -1, "beam": 1}
    result = back_translate(
        options.checkpoint,
        options.data,
        options.source_lang,
        options.target_lang,
        generation,
        target_pieces_only=options.target_pieces_only,
        fp16=options.fp16,
        split=options.split,
        length=options.length,
        max_tokens=options.max_tokens,
        seed=1 if options.seed is None else options.seed,
    )
    sys.stdout.write(json.dumps(result) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("fairseq-xl back-translate", description=__doc__)
    parser.add_argument("checkpoint", help="checkpoint that translates from TARGET into SOURCE")
    parser.add_argument("data", help="its data folder")
    parser.add_argument("-s", "--source-lang", required=True, metavar="SOURCE", help="language to generate")
    parser.add_argument("-t", "--target-lang", required=True, metavar="TARGET", help="language of the text")
    parser.add_argument("--split", default="train", help="split of the monolingual text (default: train)")
    parser.add_argument(
        "--beam", action=in_range(int, "1 or more", bounds.LARGEST_BEAM), help=f"beam size (default: {BEAM})"
    )
    parser.add_argument("--sampling", action="store_true", help="sample in place of beam search (Edunov et al. 2018)")
    parser.add_argument("--sampling-topk", action=positive_integer, help="sample from the K most probable symbols")
    parser.add_argument(
        "--temperature",
        action=in_range(float, "more than 0"),
        default=1.0,
        help="temperature of the probabilities (default: 1)",
    )
    parser.add_argument(
        "--target-pieces-only",
        action="store_true",
        help="write only pieces of SOURCE: those that occur in its training text, with at least 1/20 of their share in "
        "the text of any other language",
    )
    parser.add_argument("--fp16", action="store_true", help="compute with 16 bits, for GPUs")
    parser.add_argument(
        "--length", action=positive_integer, default=250, help="leave out longer sentences, in tokens (default: 250)"
    )
    parser.add_argument("--max-tokens", action=positive_integer, default=8000, help="tokens of a batch (default: 8000)")
    parser.add_argument("--seed", action=in_range(int, "0 or more", 2**32), help="seed of sampling (default: 1)")
    return parser
