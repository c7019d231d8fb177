"""Options of fairseq-train that have no effect on a run, for a warning."""

import logging
from typing import Any

from fairseq.dataclass.configs import FairseqConfig
from fairseq.tasks import TASK_DATACLASS_REGISTRY

from fairseq_xl.engine.interfaces import Task
from fairseq_xl.io.options import changed, option_name

logger = logging.getLogger(__name__)

#: section -> option without effect -> reason
UNUSED: dict[str, dict[str, str]] = {
    "common": {
        "fp16_no_flatten_grads": "gradients are never flattened",
        **dict.fromkeys(("use_plasma_view", "plasma_path"), "text is memory-mapped"),
    },
    "distributed_training": {
        "find_unused_parameters": "an update may leave parameters unused",
        "fast_stat_sync": "statistics are always summed at once",
    },
    "dataset": {
        "required_batch_size_multiple": "batches keep their size",
        "required_seq_len_multiple": "batches are not padded further",
        "dataset_impl": "the data folder says how its text is stored",
        "skip_invalid_size_inputs_valid_test": "validation leaves out no text",
        "combine_valid_subsets": "--valid-subset names the splits",
        "gen_subset": "it is for fairseq-generate",
        **dict.fromkeys(("num_shards", "shard_id"), "--distributed-world-size is the number of processes"),
    },
}
#: section -> option -> options of the section, one of which it needs to have an effect
NEEDED: dict[str, dict[str, tuple[str, ...]]] = {
    "common": {
        **dict.fromkeys(("fp16_init_scale", "fp16_scale_window", "fp16_scale_tolerance"), ("fp16",)),
        **dict.fromkeys(("min_loss_scale", "threshold_loss_scale"), ("fp16", "amp")),
        **dict.fromkeys(("amp_init_scale", "amp_scale_window", "amp_batch_retries"), ("amp",)),
    },
    "ema": dict.fromkeys(("ema_decay", "ema_start_update", "ema_seed_model", "ema_update_freq"), ("store_ema",)),
    "checkpoint": {
        "keep_interval_updates": ("save_interval_updates",),
        "keep_interval_updates_pattern": ("keep_interval_updates",),
    },
}
_ORDER = ("curriculum", "grouped_shuffling", "update_ordered_indices_seed")
#: whether an epoch is a pass over the data -> section -> options without effect, since batches are planned
PLANNED: dict[bool, dict[str, tuple[str, ...]]] = {
    False: {"dataset": _ORDER, "optimization": ("skip_remainder_batch",)},
    True: {"dataset": _ORDER},
}
#: (section, flag) -> section -> options without effect if the flag is set
REPLACED: dict[tuple[str, str], dict[str, tuple[str, ...]]] = {
    ("dataset", "disable_validation"): {
        "dataset": ("validate_interval_updates", "max_valid_steps"),
        "checkpoint": ("patience", "keep_best_checkpoints"),
    },
    ("checkpoint", "no_epoch_checkpoints"): {"checkpoint": ("keep_last_epochs",)},
    ("checkpoint", "no_save"): {"checkpoint": ("save_interval_updates", "keep_last_epochs", "keep_best_checkpoints")},
}
#: options that select the examples of an epoch that is a pass over the data
PASS_OPTIONS = ("examples_per_epoch", "upsample_primary")
HARMLESS = {("required_batch_size_multiple", 1)}  # (option, value) that is the behavior anyway


def warn_of_unused(run: Any, task: Task) -> None:
    """Logs a warning that names the options without effect on a training: fairseq's and the task's."""
    unused = without_effect(run) | task.options_without_effect(run)
    if unused:
        logger.warning("no effect: %s", "; ".join(f"{option} ({reason})" for option, reason in unused.items()))


def without_effect(run: Any) -> dict[str, str]:
    """Options of a training that are not at their default and have no effect: {``--option value``: reason}."""
    passes = not isinstance(run.task.updates_per_epoch, int)  # auto: an epoch is a pass over the data
    reasons = {}
    for section in {**UNUSED, **NEEDED, **PLANNED[passes]}:
        values, kind = run.get(section), FairseqConfig.__dataclass_fields__[section].type
        for name in changed(values, kind) if values is not None else ():
            reason, needed = UNUSED.get(section, {}).get(name), NEEDED.get(section, {}).get(name)
            defaults = {option: (None, False, kind.__dataclass_fields__[option].default) for option in needed or ()}
            if needed and all(values[option] in unset for option, unset in defaults.items()):
                reason = f"{' or '.join(map(option_name, needed))} is needed"
            if name in PLANNED[passes].get(section, ()):
                reason = "an epoch is a planned number of updates" if not passes else "batches are planned"
            if reason and (name, values[name]) not in HARMLESS:
                reasons[f"{option_name(name)} {values[name]}"] = reason
    for (section, flag), sections in REPLACED.items():
        for target, names in sections.items() if run[section][flag] else ():
            for name in changed(run[target], FairseqConfig.__dataclass_fields__[target].type):
                if name in names:
                    reasons[f"{option_name(name)} {run[target][name]}"] = f"{option_name(flag)} is given"
    decay, max_update = run.lr_scheduler or {}, run.optimization.max_update
    total = decay.get("total_num_update")
    if total and total < max_update and not decay.get("end_learning_rate"):
        reasons[f"--max-update {max_update}"] = f"the learning rate is 0 after --total-num-update {total:g}"
    if run.optimization.sentence_avg and "sentence_avg" not in run.criterion:
        reasons["--sentence-avg"] = "a loss is a mean over predictions"
    for name in () if passes else changed(run.task, TASK_DATACLASS_REGISTRY[run.task._name]):
        if name in PASS_OPTIONS:
            reasons[f"{option_name(name)} {run.task[name]}"] = "it is for --updates-per-epoch auto"
    return reasons
