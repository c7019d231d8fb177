"""Compares the settings of a resumed run with those of its checkpoint."""

import argparse
import os
from typing import Any

import omegaconf

from fairseq_xl.io.configuration import OUTPUTS
from fairseq_xl.io.options import INITIAL

#: sections of a configuration whose options are settings of the training
SETTINGS = ("model", "task", "criterion", "optimizer", "lr_scheduler", "optimization", "ema")
#: sections whose class is a setting too; the classes of the others are compared elsewhere
CLASSES = {"criterion", "optimizer", "lr_scheduler"}
#: options that a resumed run may change without a warning
NO_SETTINGS = {"max_epoch", "max_update", "stop_time_hours", "stop_min_lr", "validation_examples"} | OUTPUTS
#: options of other sections that change batches, gradients, precision or the choice of the best checkpoint
OTHER_SETTINGS = {
    "common": {"fp16", "memory_efficient_fp16", "bf16", "memory_efficient_bf16", "amp"}
    | {"fp16_init_scale", "fp16_scale_window", "fp16_scale_tolerance", "min_loss_scale", "threshold_loss_scale"}
    | {"amp_init_scale", "amp_scale_window", "amp_batch_retries"},
    "dataset": {"max_tokens", "batch_size", "train_subset"}
    | {"valid_subset", "combine_valid_subsets", "max_valid_steps"},
    "distributed_training": {"distributed_world_size", "ddp_comm_hook", "localsgd_frequency"}
    | {"slowmo_momentum", "slowmo_base_algorithm"},
    "checkpoint": {"best_checkpoint_metric", "maximize_best_checkpoint_metric"},
}
#: options without effect on a resumed run, which continues from a state in the checkpoint -> reason
STORED = dict.fromkeys(("fp16_init_scale", "amp_init_scale"), "no effect: the loss scale is the checkpoint's")
STORED |= dict.fromkeys(INITIAL, "no effect: the weights are the checkpoint's")
TUPLES = str.maketrans("()", "[]")
PLATEAU = "reduce_lr_on_plateau"


def other_settings(before: Any, now: Any) -> list[str]:
    """Lists the `SETTINGS` and `OTHER_SETTINGS` that differ between a checkpoint's configuration and a run's.

    Returns: texts such as ``--lr [0.5] (was [0.002])``, and ``DATA data-bin/new (was data-bin/old)``.
    """
    changes, stored, exempt = {}, dict(STORED), NO_SETTINGS
    sizes = [options_of(cfg, "task").get("batches_per_update") for cfg in (before, now)]
    if sizes[0] == sizes[1] is not None:  # updates do not depend on the number of processes
        exempt = exempt | {"update_freq", "distributed_world_size"}
    if options_of(now, "lr_scheduler").get("_name") == PLATEAU:
        stored["lr"] = f"no effect after the warm-up: {PLATEAU} continues from the checkpoint's learning rate"
    for section in (*SETTINGS, *OTHER_SETTINGS):
        old, new = (options_of(cfg, section) for cfg in (before, now))
        for name in old.keys() & new.keys() & OTHER_SETTINGS.get(section, old.keys()) - exempt:
            if name == "_name" and section not in CLASSES:
                continue
            # a list equals a tuple of its items; DATA has folders joined by ":"
            compared = _folders if name == "data" else lambda value: value.translate(TUPLES)
            if compared(str(old[name])) != compared(str(new[name])):
                option = f"--{(section if name == '_name' else name).replace('_', '-')}"
                remark = f"; {stored[name]}" if name in stored else ""
                changes[option] = f"{'DATA' if name == 'data' else option} {new[name]} (was {old[name]}{remark})"
    return [changes[option] for option in sorted(changes)]


def _folders(data: str) -> list[str]:
    return [*map(os.path.abspath, data.split(os.pathsep))]


def options_of(cfg: Any, section: str) -> dict[str, Any]:
    """The options of a section of a configuration; fairseq keeps those of some of its own models in a Namespace."""
    options: Any = (cfg or {}).get(section) or {}
    if isinstance(options, argparse.Namespace):
        return vars(options)
    if omegaconf.OmegaConf.is_config(options):
        options = omegaconf.OmegaConf.to_container(options, resolve=True)
    return options


def differs(before: Any, now: Any, section: str, name: str) -> bool:
    """Whether an option has another value in another configuration that has it too."""
    old, new = (options_of(cfg, section) for cfg in (before, now))
    return name in old and name in new and str(old[name]) != str(new[name])
