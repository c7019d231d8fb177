"""Back-translates monolingual text of a language, to train translation into it on more pairs (Sennrich et al. 2016).

    fairseq-xl back-translate runs/my/unsupervised/checkpoint_best.pt data-bin/my -s en -t de --beam 5

The checkpoint translates from TARGET into SOURCE. Writes DATA/SOURCE-TARGET/back-TARGET.SOURCE-TARGET.*, which
`xl_translation --back-translated` reads, and prints statistics. A stopped run continues.
"""

from typing import Any

from fairseq_xl import register
from fairseq_xl.commands import BEAM_SIZE, Options, argument, command, flag
from fairseq_xl.errors import UserError, in_range, positive_integer

BEAM = 5  # our choice: the paper names none (X13)


@command(
    argument("checkpoint", "checkpoint that translates from TARGET into SOURCE"),
    argument("data", "its data folder"),
    argument("-s --source-lang", "language to generate", required=True, metavar="SOURCE"),
    argument("-t --target-lang", "language of the text", required=True, metavar="TARGET"),
    argument("--split", "split of the monolingual text", default="train"),
    argument("--beam", f"beam size (default: {BEAM})", BEAM_SIZE),
    flag("--sampling", "sample in place of beam search (Edunov et al. 2018)"),
    argument("--sampling-topk", "sample from the K most probable symbols", positive_integer),
    argument("--temperature", "temperature of the probabilities", in_range(float, "more than 0"), 1.0),
    flag(
        "--target-pieces-only",
        "write only pieces of SOURCE: those that occur in its training text, with at least 1/20 of their share in the "
        "text of any other language",
    ),
    flag("--fp16", "compute with 16 bits, for GPUs"),
    argument("--length", "leave out longer sentences, in tokens", positive_integer, 250),
    argument("--max-tokens", "tokens of a batch", positive_integer, 8000),
    argument("--seed", "seed of sampling (default: 1)", in_range(int, "0 or more", 2**32)),
)
def main(options: Options) -> dict[str, Any]:
    if options.sampling_topk and not options.sampling:
        raise UserError("--sampling-topk needs --sampling")
    if options.seed is not None and not options.sampling:
        raise UserError(f"--seed {options.seed}: only --sampling is random")
    if options.sampling and options.beam not in (None, 1):
        raise UserError(f"--beam {options.beam}: --sampling draws one source for each sentence, leave out --beam")
    register()
    from fairseq_xl.inference.offline_back_translation import back_translate

    generation = {"beam": options.beam or BEAM, "temperature": options.temperature}
    if options.sampling:
        generation |= {"sampling": True, "sampling_topk": options.sampling_topk or -1, "beam": 1}
    return back_translate(
        *(options.checkpoint, options.data, options.source_lang, options.target_lang, generation),
        target_pieces_only=options.target_pieces_only,
        fp16=options.fp16,
        split=options.split,
        length=options.length,
        max_tokens=options.max_tokens,
        seed=1 if options.seed is None else options.seed,
    )
