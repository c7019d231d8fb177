"""Checks of the options of fairseq-generate and fairseq-interactive: those without effect are refused with the reason.

`predict`, `back-translate` and `fairseq_xl.load` build the generator with them too.
"""

import logging
from typing import Any

from fairseq.dataclass.configs import CommonConfig, CommonEvalConfig, DatasetConfig, GenerationConfig
from omegaconf import OmegaConf

from fairseq_xl.errors import UserError, check_number
from fairseq_xl.io.bounds import LARGEST, LARGEST_BEAM
from fairseq_xl.io.options import changed, option_name

logger = logging.getLogger(__name__)

_SPEECH = "it is for speech translation in two passes"
_ITERATIVE = "it is for models that refine a whole output"
_UNUSED_BY_FAIRSEQ = "fairseq does not use it either"
_TRAINING = "it is for training"
#: section -> option without effect -> reason
UNUSED: dict[str, dict[str, str]] = {
    "generation": {
        **dict.fromkeys(("beam_mt", "max_len_a_mt", "max_len_b_mt", "lenpen_mt"), _SPEECH),
        **dict.fromkeys(
            (
                *("print_step", "retain_iter_history", "iter_decode_eos_penalty", "iter_decode_max_iter"),
                *("iter_decode_force_max_iter", "iter_decode_with_beam", "iter_decode_with_external_reranker"),
            ),
            _ITERATIVE,
        ),
        **dict.fromkeys(("no_early_stop", "no_beamable_mm", "decoding_format"), _UNUSED_BY_FAIRSEQ),
        "sacrebleu": "--scoring sacrebleu scores with sacreBLEU",
        "lm_weight": "beam search uses no language model",
        "eos_token": "an output begins with the symbol of its language",
        **dict.fromkeys(("retain_dropout", "retain_dropout_modules"), "dropout is for training"),
    },
    "dataset": {
        "skip_invalid_size_inputs_valid_test": "long lines are truncated, so that no output is missing",
        "required_seq_len_multiple": "batches are not padded further",
        **dict.fromkeys(
            (
                *("train_subset", "valid_subset", "combine_valid_subsets", "ignore_unused_valid_subsets"),
                *("validate_interval", "validate_interval_updates", "validate_after_updates", "max_valid_steps"),
                *("fixed_validation_seed", "disable_validation", "curriculum", "grouped_shuffling"),
                "update_ordered_indices_seed",
            ),
            _TRAINING,
        ),
    },
    "common": dict.fromkeys(("bf16", "memory_efficient_bf16", "amp"), "--fp16 computes with 16 bits"),
}
#: of fairseq-interactive alone
UNUSED_IN_INTERACTIVE: dict[str, dict[str, str]] = {
    "generation": dict.fromkeys(("prefix_size", "score_reference"), "fairseq-interactive reads no targets"),
    "dataset": {"gen_subset": "fairseq-interactive reads --input"},
    "common_eval": dict.fromkeys(("quiet", "results_path"), "fairseq-interactive prints all output"),
}
SECTIONS = dict(generation=GenerationConfig, dataset=DatasetConfig, common=CommonConfig, common_eval=CommonEvalConfig)
#: option -> its range in `fairseq_xl.errors.RANGES`, None for any finite number, and its upper bound
_NUMBERS: dict[str, tuple[str | None, int]] = {
    "beam": ("1 or more", LARGEST_BEAM),
    "nbest": ("1 or more", LARGEST_BEAM),
    **dict.fromkeys(
        ("max_len_a", "max_len_b", "min_len", "prefix_size", "no_repeat_ngram_size"), ("0 or more", LARGEST)
    ),
    "temperature": ("more than 0", LARGEST),
    **dict.fromkeys(("lenpen", "unkpen", "diverse_beam_strength", "diversity_rate"), (None, LARGEST)),
}


def check_generation(args: Any, symbols: int) -> None:
    """Raises `UserError` for options of `GenerationConfig` without effect, out of range, or that exclude each other."""
    _check_unused({"generation": args}, UNUSED)
    for name, (expected, below) in _NUMBERS.items():
        check_number(option_name(name), getattr(args, name), expected, below)
    if args.score_reference:
        ignored = set(changed(args, GenerationConfig)) - {"score_reference", "print_alignment", "no_seed_provided"}
        if ignored:
            raise UserError(f"{option_name(min(ignored))} has no effect with --score-reference: it generates nothing")
        return
    if args.nbest > args.beam:
        raise UserError(f"--nbest {args.nbest}: --beam {args.beam} finds no more hypotheses than that")
    _check_search(args, symbols)
    if args.unnormalized and args.lenpen != 1:
        logger.warning("--lenpen %s has no effect with --unnormalized", args.lenpen)
    if args.match_source_len and {"max_len_a", "max_len_b"} & {*changed(args, GenerationConfig)}:
        raise UserError("--max-len-a and --max-len-b have no effect with --match-source-len")


def check_run(run: Any, interactive: bool) -> None:
    """Raises `UserError` for options of the other sections of a command's configuration that have no effect."""
    sections = {name: run[name] for name in SECTIONS if name in run}
    _check_unused(sections, UNUSED)
    multiple = run.dataset.required_batch_size_multiple
    if multiple not in (1, DatasetConfig.required_batch_size_multiple):
        raise UserError(f"--required-batch-size-multiple {multiple} has no effect on generation")
    if interactive:
        _check_unused(sections, UNUSED_IN_INTERACTIVE)
        if (scoring := OmegaConf.select(run, "scoring._name")) not in (None, "bleu"):
            raise UserError(f"--scoring {scoring} has no effect: fairseq-interactive computes no score")
        if run.generation.print_alignment == "soft":
            raise UserError("--print-alignment soft: fairseq-interactive prints hard alignments only")


def _check_search(args: Any, symbols: int) -> None:
    """Raises `UserError` for options of search strategies that exclude each other or have no effect."""
    strategies = {
        "--sampling": args.sampling,
        "--diverse-beam-groups": args.diverse_beam_groups > 0,
        "--match-source-len": args.match_source_len,
        "--diversity-rate": args.diversity_rate > -1,
        "--constraints": args.constraints,
    }
    if len(chosen_options := [name for name, is_set in strategies.items() if is_set]) > 1:
        raise UserError(f"{' and '.join(chosen_options)} exclude each other: choose one of them")
    topk, topp = args.sampling_topk, args.sampling_topp
    for name, value in (("sampling_topk", topk), ("sampling_topp", topp)):
        if value != -1 and not args.sampling:
            raise UserError(f"{option_name(name)} {value}: --sampling is needed too")
    if topk != -1 and not 1 <= topk <= symbols:
        raise UserError(f"--sampling-topk {topk}: expected at most {symbols}, the number of symbols, and 1 or more")
    if topp != -1 and not 0 < topp <= 1:
        raise UserError(f"--sampling-topp {topp}: expected a probability above 0")
    if topk != -1 and topp != -1:
        raise UserError("--sampling-topk has no effect with --sampling-topp: choose one of them")
    groups = args.diverse_beam_groups
    if groups != -1 and (groups < 1 or args.beam % groups):
        raise UserError(f"--diverse-beam-groups {groups}: expected a number that divides --beam {args.beam}")
    if args.diverse_beam_strength != GenerationConfig.diverse_beam_strength and groups == -1:
        raise UserError(f"--diverse-beam-strength {args.diverse_beam_strength}: --diverse-beam-groups is needed too")


def _check_unused(sections: dict[str, Any], unused: dict[str, dict[str, str]]) -> None:
    for section, names in unused.items():
        for name in changed(sections[section], SECTIONS[section]) if section in sections else ():
            if name in names:
                raise UserError(f"{option_name(name)} has no effect on generation: {names[name]}; leave it out")
