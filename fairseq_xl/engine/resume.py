"""Where a training begins: from its last checkpoint, from weights that --finetune-from-model names, or anew."""

import contextlib
import functools
import logging
import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.data import iterators
from fairseq.distributed import utils as distributed_utils
from fairseq.optim import OPTIMIZER_REGISTRY
from omegaconf import DictConfig

from fairseq_xl.engine import save_dir
from fairseq_xl.engine.interfaces import Consolidating
from fairseq_xl.engine.selection import Selection
from fairseq_xl.engine.settings import check_combination, differs, is_of_run, options_of, other_settings
from fairseq_xl.engine.trainer import Trainer
from fairseq_xl.errors import UserError
from fairseq_xl.io.checkpoints import NO_CHECKPOINT, NOT_FINITE, naming_misfit
from fairseq_xl.io.literals import literal
from fairseq_xl.io.ranks import broadcast

logger = logging.getLogger(__name__)

SHARDED = "SHARDED"  # in a checkpoint's place of an optimizer state that rank 0 keeps
#: options on which it depends whether two validation results can be compared
COMPARED = [
    ("checkpoint", "best_checkpoint_metric"),
    ("checkpoint", "maximize_best_checkpoint_metric"),
    ("dataset", "valid_subset"),
]
#: flags of precision, those before others first ("": 32 bits) -> fairseq's class that wraps the optimizer
PRECISIONS = {
    "--memory-efficient-bf16": "MemoryEfficientFP16Optimizer",
    "--memory-efficient-fp16": "MemoryEfficientFP16Optimizer",
    "--amp": "AMPOptimizer",
    "--bf16": "FP16Optimizer",
    "--fp16": "FP16Optimizer",
    "": None,
}


def restore(trainer: Trainer, selection: Selection) -> iterators.EpochBatchIterating:
    """Restores the run's checkpoint into a trainer and its choice of checkpoints; returns the batches from there on.

    Raises `UserError` for a checkpoint that is damaged, or of another training.
    """
    cfg = trainer.cfg.checkpoint
    check_restore_file(trainer)
    path, resets = save_dir.chosen(cfg)
    if cfg.finetune_from_model and path == cfg.finetune_from_model:
        logger.info("loading pretrained model from %s: optimizer, lr scheduler, meters, dataloader will be reset", path)
    sharded = trainer.task.has_sharded_data("train")
    epoch, position, waiting = 1, None, None
    if os.path.isfile(path):
        state = _read_on_all_ranks(trainer, path, resets)
        extra = state["extra_state"]
        with naming_misfit([path]):
            trainer.load_state_dict(state, resets, literal(cfg.optimizer_overrides))
        position = None if resets["dataloader"] else extra["train_iterator"]
        waiting = None if resets["dataloader"] else extra.get(type(trainer.task).__name__)
        selection.restore(None if resets["optimizer"] or resets["meters"] else extra.get("best"), waiting)
        updates = trainer.get_num_updates()
        logger.info("Loaded checkpoint %s (epoch %d @ %d updates)", path, extra["train_iterator"]["epoch"], updates)
        del state, extra  # before the training data is loaded
    else:
        logger.info("No existing checkpoint found %s", path)
    epoch = position["epoch"] if position else 1
    epochs = trainer.get_train_iterator(epoch, disable_iterator_cache=sharded)
    if position:
        with _shorter_epoch(path):
            epochs.load_state_dict(position)
    trainer.lr_step(epochs.epoch)
    if getattr(epochs, "epoch_is_over", False):
        epoch, ranks = epochs.epoch, trainer.world_size
        logger.info("epoch %d has no batch left for %d processes: epoch %d begins", epoch - 1, ranks, epoch)
        epochs = trainer.get_train_iterator(epoch, load_dataset=sharded, disable_iterator_cache=sharded)
    return epochs


def _read_on_all_ranks(trainer: Trainer, path: str, resets: Mapping[str, bool]) -> dict[str, Any]:
    """A checkpoint on all ranks: rank 0 reads and checks it, unless --load-checkpoint-on-all-dp-ranks.

    Each rank gets its own part of the state of a sharded optimizer only, when it loads the state.
    """
    on_all = trainer.cfg.checkpoint.load_checkpoint_on_all_dp_ranks or trainer.world_size == 1
    state = _read_and_check(trainer, path, resets) if on_all or trainer.rank == 0 else None
    if on_all:
        assert state is not None
        return state
    optimizer, sharded = None, isinstance(trainer.optimizer.torch_optimizer, Consolidating)
    if sharded and state is not None and state.get("last_optimizer_state") is not None:
        optimizer, state["last_optimizer_state"] = state["last_optimizer_state"], SHARDED
    shared = broadcast(state, 0, distributed_utils.get_data_parallel_group(), trainer.device)
    if isinstance(trainer.optimizer.torch_optimizer, Consolidating) and shared.get("last_optimizer_state") == SHARDED:
        shared["last_optimizer_state"] = trainer.optimizer.torch_optimizer.broadcast_global_state_dict(optimizer)
    return shared


def _read_and_check(trainer: Trainer, path: str, resets: Mapping[str, bool]) -> dict[str, Any]:
    """Reads a checkpoint; checks it against the run, and changes its position to this number of processes."""
    cfg, task = trainer.cfg, trainer.task
    own = os.path.dirname(os.path.abspath(path)) == os.path.abspath(cfg.checkpoint.save_dir)
    try:
        state: dict[str, Any] = checkpoint_utils.load_checkpoint_to_cpu(path, load_on_all_ranks=False)
    except UserError as error:
        if not own or not any(reason in str(error) for reason in (NO_CHECKPOINT, NOT_FINITE)):
            raise
        raise UserError(f"{error}; continue from another checkpoint of its folder with --restore-file") from error
    if path != cfg.checkpoint.finetune_from_model:
        _forget_incomparable(state, cfg)
    if own:
        changes = other_settings(state.get("cfg"), cfg)
        check_combination(state.get("cfg"), cfg, changes, path)
        if changes:
            logger.warning("%s is resumed with other settings than before: %s", path, ", ".join(changes))
    _scale_position(state, cfg)
    if not resets["optimizer"] and state.get("last_optimizer_state") is not None:
        _check_precision(state, cfg, path)
        _check_classes(state, trainer, path)
    task.check_fits(state, path)
    task.check_inputs(state, path)
    return state


def _check_precision(state: Mapping[str, Any], cfg: DictConfig, path: str) -> None:
    """Raises `UserError` for the optimizer state of another class of optimizers or of another precision."""
    _check_optimizer(state.get("cfg"), cfg, path)
    before, now = (_precision(options_of(each, "common")) for each in (state.get("cfg"), cfg))
    if PRECISIONS[before] != PRECISIONS[now]:
        trained, advice = (f"with {before}", f"add {before}") if before else ("in 32 bits", f"leave out {now}")
        runs = f"has {now}" if now else "is in 32 bits"
        if before and now:
            advice = f"give {before} instead of {now}"
        raise UserError(
            f"{path} was trained {trained}, and this run {runs}: {advice}, or start with a new optimizer state "
            "(--reset-optimizer)"
        )


def _check_classes(state: Mapping[str, Any], trainer: Trainer, path: str) -> None:
    """Raises `UserError` for the optimizer state of another criterion or optimizer."""
    last = state["optimizer_history"][-1]
    for kind, now in (("criterion", type(trainer.criterion).__name__), ("optimizer", trainer.optimizer.name)):
        if last[f"{kind}_name"] != now:
            raise UserError(
                f"{kind.title()} does not match: {path} was trained with {last[f'{kind}_name']}, this run has {now}; "
                "please reset the optimizer (--reset-optimizer)"
            )


def _scale_position(state: Mapping[str, Any], cfg: DictConfig) -> None:
    """Changes a checkpoint's position in the epoch, a number of batches of each process, to this number of processes.

    Where an epoch is a number of updates, the run continues after the same update, also with another --update-freq.
    Otherwise it continues after the batches that all processes have read together.
    """
    position = (state.get("extra_state") or {}).get("train_iterator") or {}
    made = position.get("iterations_in_epoch")
    if made and "updates_per_epoch" in cfg.task:
        before, now = (_micro_steps(each, position["epoch"]) for each in (state.get("cfg"), cfg))
        position["iterations_in_epoch"] = made // before * now if before and now else made
    elif made:
        sections = (options_of(each, "distributed_training") for each in (state.get("cfg"), cfg))
        before, now = (options.get("distributed_world_size") for options in sections)
        position["iterations_in_epoch"] = -(-made * before // now) if before and now else made


def _check_optimizer(before: Any, now: DictConfig, path: str) -> None:
    """Refuses the state of another class of optimizers, which fairseq does not notice in 16 bits."""
    names = [options_of(cfg, "optimizer").get("_name") for cfg in (before, now)]
    classes = [getattr(OPTIMIZER_REGISTRY.get(name), "__name__", None) for name in names]
    if None not in classes and classes[0] != classes[1]:
        raise UserError(
            f"Optimizer does not match: {path} was trained with --optimizer {names[0]}, this run has --optimizer "
            f"{names[1]}: start with a new optimizer state (--reset-optimizer)"
        )


def _precision(common: Mapping[str, Any]) -> str:
    """The flag in `PRECISIONS` that options of the section `common` amount to."""
    flags = (flag for flag in PRECISIONS if flag and common.get(flag[2:].replace("-", "_")))
    return next(flags, "")


def _micro_steps(cfg: Any, epoch: int) -> int | None:
    """The batches that each process accumulates for an update of an epoch; None if the configuration is missing."""
    frequencies = options_of(cfg, "optimization").get("update_freq")
    return int(frequencies[min(epoch, len(frequencies)) - 1]) if frequencies else None


def _forget_incomparable(state: dict[str, Any], now: DictConfig) -> None:
    """Removes state of another scheduler, and the best value of another validation metric or split.

    fairseq would load the state of any scheduler, and compare values of one metric with the best of another.
    """
    before, extra = state.get("cfg"), state.get("extra_state") or {}
    worst = -math.inf if now.checkpoint.maximize_best_checkpoint_metric else math.inf
    if any(differs(before, now, *key) for key in COMPARED):
        for stored in (extra, *extra.values()):  # also of --patience
            for name in ("best", "num_runs") if isinstance(stored, dict) else ():
                stored.pop(name, None)
        state["optimizer_history"][-1]["lr_scheduler_state"]["best"] = worst
    if differs(before, now, "lr_scheduler", "_name"):
        state["optimizer_history"][-1]["lr_scheduler_state"] = {"best": worst}


@contextlib.contextmanager
def _shorter_epoch(path: str) -> Iterator[None]:
    """Raises `UserError` where the epoch, with other settings, has no batches after those that were read before."""
    try:
        yield
    except RuntimeError as error:
        if not str(error).startswith("Cannot resume training due to dataloader mismatch"):
            raise
        raise UserError(
            f"{path}: as many batches of the epoch were read as it now has, or more, since settings have changed: "
            "resume with the earlier ones, or restart the epoch with --reset-dataloader"
        ) from error


def is_finished(trainer: Trainer, selection: Selection) -> bool:
    """Whether a run that is started again has made all of its updates, or --patience has ended it.

    Raises `UserError` if --continue-once names a checkpoint with --max-update updates or more.
    """
    cfg, made, limit = trainer.cfg.checkpoint, trainer.get_num_updates(), trainer.cfg.optimization.max_update
    if limit and made >= limit:
        last = f"checkpoint_last{cfg.checkpoint_suffix}.pt"
        if cfg.continue_once and not os.path.exists(os.path.join(cfg.save_dir, last)):
            raise UserError(
                f"--continue-once {cfg.continue_once}: it has {made} updates, --max-update must be above {made}"
            )
        logger.info("nothing to do: %d updates are made, --max-update is %d", made, limit)
        return True
    if made and 0 < cfg.patience <= selection.waited:
        logger.info("nothing to do: %d validations were no better, --patience is %d", selection.waited, cfg.patience)
        return True
    return False


def check_restore_file(trainer: Trainer) -> None:
    """Raises `UserError` for a missing --restore-file other than checkpoint_last.pt, and for one that is a folder."""
    cfg, suffix = trainer.cfg.checkpoint, trainer.cfg.checkpoint.checkpoint_suffix
    path = cfg.restore_file.replace(".pt", f"{suffix}.pt")
    if os.path.basename(cfg.restore_file) != "checkpoint_last.pt" and not os.path.isfile(path):
        raise UserError(f"--restore-file {path} does not exist")
    last = os.path.join(cfg.save_dir, path)  # a --restore-file that is a whole path is not looked up in --save-dir
    if os.path.lexists(last) and not os.path.isfile(last):
        raise UserError(f"{last} is not a file: it is where the run's last checkpoint is read and written")
    try:
        if trainer.rank == 0:
            save_dir.check_last_checkpoint(cfg, suffix, functools.partial(is_of_run, trainer.cfg))
    finally:
        if trainer.world_size > 1:
            torch.distributed.barrier()  # all ranks then see the same files
