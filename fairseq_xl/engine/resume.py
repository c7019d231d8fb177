"""The start of a training: from its last checkpoint, from the weights of --finetune-from-model, or from scratch."""

import logging
import math
import os
from collections.abc import Mapping
from typing import Any

from fairseq.distributed import utils as distributed_utils
from fairseq.optim import OPTIMIZER_REGISTRY
from omegaconf import DictConfig

from fairseq_xl.engine import save_dir
from fairseq_xl.engine.epochs import Epochs, micro_steps_of
from fairseq_xl.engine.loading import check_training, load_own_checkpoint, naming_misfit
from fairseq_xl.engine.selection import Selection
from fairseq_xl.engine.trainer import Trainer
from fairseq_xl.errors import UserError
from fairseq_xl.io.changed_settings import differs, options_of, other_settings
from fairseq_xl.io.checkpoints import NO_CHECKPOINT, NOT_FINITE
from fairseq_xl.io.options import AUTO, literal
from fairseq_xl.io.ranks import broadcast
from fairseq_xl.optimizers.linear_schedule import XLLinearSchedule

logger = logging.getLogger(__name__)

#: options that two runs must share so that their validation results can be compared
COMPARED = [
    ("checkpoint", "best_checkpoint_metric"),
    ("checkpoint", "maximize_best_checkpoint_metric"),
    ("dataset", "valid_subset"),
]
#: options of precision; the first that is set names the precision, since the last two are set with the first two
PRECISIONS = ("memory_efficient_bf16", "memory_efficient_fp16", "amp", "bf16", "fp16")


def restore(trainer: Trainer, selection: Selection) -> Epochs:
    """Restores the run's checkpoint; returns the batches from its position on. `UserError` for one that is wrong."""
    cfg = trainer.cfg.checkpoint
    path, resets = save_dir.choose_checkpoint(cfg)
    if cfg.finetune_from_model and path == cfg.finetune_from_model:
        logger.info("loading pretrained model from %s: optimizer, lr scheduler, meters, dataloader will be reset", path)
    sharded = trainer.task.has_sharded_data("train")
    position = None
    if os.path.isfile(path):
        state = _read_on_all_ranks(trainer, path, resets)
        extra = state["extra_state"]
        with naming_misfit([path]):
            trainer.load_state_dict(state, resets, literal(cfg.optimizer_overrides))
        position = None if resets["dataloader"] else extra["train_iterator"]
        waiting = None if resets["dataloader"] else extra.get(type(trainer.task).__name__)
        comparable = {} if resets["optimizer"] or resets["meters"] else extra
        selection.restore(comparable.get("best"), waiting, comparable.get("best_by_language"))
        updates = trainer.get_num_updates()
        logger.info("Loaded checkpoint %s (epoch %d @ %d updates)", path, extra["train_iterator"]["epoch"], updates)
        del state, extra  # before the training data is loaded
    else:
        logger.info("No existing checkpoint found %s", path)
    epochs = trainer.get_train_iterator(position["epoch"] if position else 1)
    if position:
        try:
            epochs.load_state_dict(position)
        except LookupError as error:
            raise UserError(
                f"{path}: as many batches of the epoch were read as it now has, or more, since settings have changed: "
                "resume with the earlier ones, or restart the epoch with --reset-dataloader"
            ) from error
    if isinstance(trainer.lr_scheduler, XLLinearSchedule):
        trainer.lr_scheduler.set_total(_total_updates(trainer, epochs))
    trainer.lr_step(epochs.epoch)
    if position and epochs.epoch != position["epoch"]:
        epoch, ranks = epochs.epoch, trainer.world_size
        logger.info("epoch %d has no batch left for %d processes: epoch %d begins", epoch - 1, ranks, epoch)
        epochs = trainer.get_train_iterator(epoch, load_dataset=sharded)
    return epochs


def _total_updates(trainer: Trainer, epochs: Epochs) -> int:
    """The number of updates of the whole training; raises `UserError` if it has no end."""
    limits, per_epoch = trainer.cfg.optimization, trainer.cfg.task.updates_per_epoch
    totals = [limits.max_update] if limits.max_update else []
    if limits.max_epoch and per_epoch != AUTO:
        totals.append(limits.max_epoch * per_epoch)
    elif limits.max_epoch and not trainer.task.has_sharded_data("train"):
        numbers = range(1, limits.max_epoch + 1)
        totals.append(sum(epochs.number_of_updates(epoch, limits.skip_remainder_batch) for epoch in numbers))
    if not totals:
        end = "--max-update" if limits.max_epoch else "--max-update or --max-epoch"
        raise UserError(f"--lr-scheduler xl_linear needs {end}: it decays to the last update")
    return min(totals)


def _read_on_all_ranks(trainer: Trainer, path: str, resets: Mapping[str, bool]) -> dict[str, Any]:
    """A checkpoint on all ranks: rank 0 reads and checks it, unless --load-checkpoint-on-all-dp-ranks."""
    if trainer.cfg.checkpoint.load_checkpoint_on_all_dp_ranks or trainer.world_size == 1:
        return _read_and_check(trainer, path, resets)
    state = _read_and_check(trainer, path, resets) if trainer.rank == 0 else None
    return broadcast(state, 0, distributed_utils.get_data_parallel_group(), trainer.device)


def _read_and_check(trainer: Trainer, path: str, resets: Mapping[str, bool]) -> dict[str, Any]:
    """Reads a checkpoint, checks that it fits the run, and converts its position to this number of processes."""
    cfg, task = trainer.cfg, trainer.task
    in_save_dir = os.path.dirname(os.path.abspath(path)) == os.path.abspath(cfg.checkpoint.save_dir)
    try:
        state = load_own_checkpoint(path)
    except UserError as error:
        if not in_save_dir or not any(reason in str(error) for reason in (NO_CHECKPOINT, NOT_FINITE)):
            raise
        count = sum(name.endswith(".pt") for name in os.listdir(cfg.checkpoint.save_dir))
        remedy = "continue from another checkpoint of its folder with --restore-file"
        remedy = remedy if count > 1 else "its folder has no other one: remove it, and training begins anew"
        raise UserError(f"{error}; {remedy}") from error
    check_training(state, path)
    trained = state["task_state"]["fairseq_xl"]["task"]
    if in_save_dir and trained != cfg.task._name:
        raise UserError(f"{path} is of a run of {trained}, this one is of {cfg.task._name}: choose another --save-dir")
    if path != cfg.checkpoint.finetune_from_model:
        _forget_incomparable(state, cfg)
    if in_save_dir and (changes := other_settings(state["cfg"], cfg)):
        logger.warning("%s is resumed with other settings than before: %s", path, ", ".join(changes))
    task.resume_from(state, path)
    if not resets["optimizer"] and state.get("last_optimizer_state") is not None:
        _check_optimizer(state, trainer, path)
    if not (cfg.checkpoint.reset_dataloader or path == cfg.checkpoint.finetune_from_model):  # the epoch goes on
        _scale_position(state, cfg)
        task.inputs.resume(state["task_state"].get("inputs"), path)
    return state


def _check_optimizer(state: Mapping[str, Any], trainer: Trainer, path: str) -> None:
    """Raises `UserError` for the optimizer state of another criterion, optimizer or precision."""
    last, before, now = state["optimizer_history"][-1], state["cfg"], trainer.cfg
    names = (options_of(cfg, "optimizer").get("_name") for cfg in (before, now))
    old, new = (getattr(OPTIMIZER_REGISTRY.get(name), "__name__", None) for name in names)  # xl_adam has that of adam
    saved = (last["criterion_name"], last["optimizer_name"], old)  # in 16 bits the second is that of a wrapper
    if saved != (type(trainer.criterion).__name__, trainer.optimizer.name, new):
        raise UserError(
            f"Optimizer does not match: {path} was trained with {_optimizer_options(before)}, this run has "
            f"{_optimizer_options(now)}: give the same ones, or start with a new optimizer state (--reset-optimizer)"
        )


def _optimizer_options(cfg: Any) -> str:
    """The options on which an optimizer's state depends."""
    names = [f"--{section} {options_of(cfg, section).get('_name')}" for section in ("criterion", "optimizer")]
    common = options_of(cfg, "common")
    precisions = [f"--{name.replace('_', '-')}" for name in PRECISIONS if common.get(name)]
    return f"{names[0]}, {names[1]}, {precisions[0] if precisions else '32 bits'}"


def _scale_position(state: Mapping[str, Any], cfg: DictConfig) -> None:
    """Converts a checkpoint's position in the epoch, in batches per process, to this number of processes.

    Where an epoch is a number of updates, the run continues after the same update, also with another --update-freq.
    Otherwise it continues after the batches that all processes have read together.
    """
    position = state["extra_state"]["train_iterator"]
    batches, epoch = position["iterations_in_epoch"], position["epoch"]
    if not batches:
        return
    passes, passed = (run.task.get("updates_per_epoch") == AUTO for run in (cfg, state["cfg"]))
    if passes != passed:
        raise UserError(
            f"epoch {epoch} was begun with --updates-per-epoch {state['cfg'].task.get('updates_per_epoch')}, this run "
            f"has {cfg.task.get('updates_per_epoch')}: restart the epoch with --reset-dataloader"
        )
    if isinstance(cfg.task.get("updates_per_epoch"), int):
        before, now = (micro_steps_of(run.optimization.update_freq, epoch) for run in (state["cfg"], cfg))
        position["iterations_in_epoch"] = batches // before * now
    else:
        before, now = (run.distributed_training.distributed_world_size for run in (state["cfg"], cfg))
        position["iterations_in_epoch"] = steps = -(-batches * before // now)
        if skipped := steps * now - batches * before:
            logger.warning("%d batches of epoch %d are skipped, since the number of processes differs", skipped, epoch)


def _forget_incomparable(state: dict[str, Any], now: DictConfig) -> None:
    """Removes the state of another scheduler, and the best value of another validation metric or split.

    fairseq would load the state of any scheduler, and compare values of different metrics.
    """
    before, extra = state["cfg"], state["extra_state"]
    worst = -math.inf if now.checkpoint.maximize_best_checkpoint_metric else math.inf
    if any(differs(before, now, *key) for key in COMPARED):
        for stored in (extra, *extra.values()):  # also of --patience
            for name in ("best", "best_by_language", "num_runs") if isinstance(stored, dict) else ():
                stored.pop(name, None)
        state["optimizer_history"][-1]["lr_scheduler_state"]["best"] = worst
    if differs(before, now, "lr_scheduler", "_name"):
        state["optimizer_history"][-1]["lr_scheduler_state"] = {"best": worst}


def is_finished(trainer: Trainer, selection: Selection) -> bool:
    """Whether a resumed run has made all updates, or --patience has ended it; `UserError` for --continue-once."""
    cfg, updates, limit = trainer.cfg.checkpoint, trainer.get_num_updates(), trainer.cfg.optimization.max_update
    if limit and updates >= limit:
        last = f"checkpoint_last{cfg.checkpoint_suffix}.pt"
        if cfg.continue_once and not os.path.exists(os.path.join(cfg.save_dir, last)):
            raise UserError(
                f"--continue-once {cfg.continue_once}: it has {updates} updates, --max-update must be above {updates}"
            )
        logger.info("nothing to do: %d updates are made, --max-update is %d", updates, limit)
        return True
    if updates and 0 < cfg.patience <= selection.waited:
        logger.info("nothing to do: %d validations were no better, --patience is %d", selection.waited, cfg.patience)
        return True
    return False
