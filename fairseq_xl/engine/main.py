"""The training loop of `fairseq-train` and `fairseq-hydra-train` for the tasks of this package."""

import contextlib
import logging
import logging.config
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from fairseq import tasks, utils
from fairseq.data import data_utils, iterators
from fairseq.dataclass.initialize import add_defaults
from fairseq.distributed import utils as distributed_utils
from fairseq.logging import meters, metrics
from omegaconf import DictConfig, OmegaConf

from fairseq_xl.engine import log, options, resume, save_dir, saving
from fairseq_xl.engine.interfaces import Task
from fairseq_xl.engine.selection import Selection
from fairseq_xl.engine.stopping import Stopping
from fairseq_xl.engine.trainer import Trainer
from fairseq_xl.errors import UserError

logger = logging.getLogger("fairseq_cli.train")  # its name in logs, which programs read


def main(cfg: DictConfig) -> bool:
    """Trains as a configuration says, or goes on from the last checkpoint of --save-dir.

    Args:
        cfg: the configuration of fairseq-train, of this process alone or of one of several ranks.

    Returns: whether a signal ended the training, whose last checkpoint is saved.

    Raises `UserError` for wrong options and input, and for a training that diverges.
    """
    utils.import_user_module(cfg.common)
    add_defaults(cfg)
    options.check(cfg)
    if distributed_utils.is_master(cfg.distributed_training):
        saving.check_folder(cfg.checkpoint.save_dir)
    with save_dir.lock(cfg) or contextlib.nullcontext():  # before the log of another training would be written to
        _prepare(cfg)
        return _train(cfg)


def _train(cfg: DictConfig) -> bool:
    """Builds everything, and trains; returns whether a signal ended the training."""
    task = tasks.setup_task(cfg.task)
    for name, value in task.stored_options().items():
        cfg.task[name] = value
    model = task.build_model(cfg.model)
    criterion = task.build_criterion(cfg.criterion)
    log.model(task, model, criterion)
    subsets = [] if cfg.dataset.disable_validation else cfg.dataset.valid_subset.split(",")
    _load_validation(cfg, task)
    trainer = Trainer(cfg, task, model, criterion)
    log.batches(cfg)
    task.begin_training()
    selection = Selection(cfg.checkpoint)
    epochs = resume.restore(trainer, selection)
    log.start_clock(cfg, trainer.get_num_updates())
    for subset in subsets:
        _make_all_batches(trainer, subset)
    with Stopping() as stopping:
        timer = meters.StopwatchMeter()
        timer.start()
        if not resume.is_finished(trainer, selection):
            task.check_selection()
            _train_epochs(trainer, epochs, selection, stopping, subsets)
        timer.stop()
        logger.info("done training in %.1f seconds", timer.sum)
    return stopping.requested


def _prepare(cfg: DictConfig) -> None:
    """Sets what a process has once: logging and seeds."""
    if distributed_utils.is_master(cfg.distributed_training) and "job_logging_cfg" in cfg:  # of hydra
        settings: Any = OmegaConf.to_container(cfg.job_logging_cfg)
        logging.config.dictConfig(settings)
    metrics.reset()
    log.open_log_file(cfg.common.log_file)
    np.random.seed(cfg.common.seed)
    utils.set_torch_seed(cfg.common.seed)
    logger.info(cfg)


def _load_validation(cfg: DictConfig, task: Task) -> None:
    """Loads the validation data; training data is loaded when its first epoch is known."""
    if cfg.dataset.disable_validation:
        return
    data_utils.raise_if_valid_subsets_unintentionally_ignored(cfg)
    for subset in cfg.dataset.valid_subset.split(","):
        task.load_dataset(subset, combine=False, epoch=1)


def _make_all_batches(trainer: Trainer, subset: str) -> None:
    """Makes all batches of a validation split once, so that wrong data ends the run before it trains."""
    for _ in trainer.get_valid_iterator(subset).next_epoch_itr(shuffle=False, set_dataset_epoch=False):
        pass


def _train_epochs(
    trainer: Trainer,
    epochs: iterators.EpochBatchIterating,
    selection: Selection,
    stopping: Stopping,
    subsets: list[str],
) -> None:
    """Trains until --max-epoch, --max-update, --stop-min-lr, --stop-time-hours, --patience or a signal ends it."""
    cfg = trainer.cfg
    rate, sharded = trainer.get_lr(), trainer.task.has_sharded_data("train")
    while epochs.next_epoch_idx <= (cfg.optimization.max_epoch or math.inf):
        if rate <= cfg.optimization.stop_min_lr:
            logger.info("the learning rate %s is not above --stop-min-lr %s", rate, cfg.optimization.stop_min_lr)
            break
        value, is_last = _train_epoch(trainer, epochs, selection, stopping, subsets)
        if is_last:
            break
        rate = trainer.lr_step(epochs.epoch, value)
        epochs = trainer.get_train_iterator(epochs.next_epoch_idx, load_dataset=sharded, disable_iterator_cache=sharded)


@metrics.aggregate("train")  # type: ignore[untyped-decorator]
def _train_epoch(
    trainer: Trainer,
    epochs: iterators.EpochBatchIterating,
    selection: Selection,
    stopping: Stopping,
    subsets: list[str],
) -> tuple[float | None, bool]:
    """Trains for an epoch; returns the last validation value, and whether the run ends."""
    cfg = trainer.cfg
    batches = _grouped_by_update(cfg, epochs)
    progress = log.progress_of(cfg, batches, epochs.epoch, training=True)
    trainer.begin_epoch(epochs.epoch)
    value, is_last = None, False
    if not batches.has_next():
        raise UserError(f"epoch {epochs.epoch} has no update: there are fewer batches than an update needs")
    for samples in progress:
        with metrics.aggregate("train_inner"):
            made = trainer.train_step(samples)
        stopping.agree()
        if made:
            log.update(progress, trainer.get_num_updates(), cfg.common.log_interval)
        if made or stopping.agreed or not batches.has_next():  # a skipped update is followed by neither
            value, is_last = _validate_and_save(trainer, epochs, selection, stopping, subsets, not batches.has_next())
        if is_last:
            break
    logger.info("end of epoch %d (average epoch stats below)", epochs.epoch)
    progress.print(log.statistics("train"), tag="train", step=trainer.get_num_updates())
    metrics.reset_meters("train")
    return value, is_last


def _grouped_by_update(cfg: DictConfig, epochs: iterators.EpochBatchIterating) -> iterators.GroupedIterator:
    """The batches of an epoch that are left, grouped by update."""
    batches = epochs.next_epoch_itr(
        fix_batches_to_gpus=cfg.distributed_training.fix_batches_to_gpus,
        shuffle=epochs.next_epoch_idx > cfg.dataset.curriculum,
    )
    steps = cfg.optimization.update_freq
    return iterators.GroupedIterator(
        batches, steps[min(epochs.epoch, len(steps)) - 1], skip_remainder_batch=cfg.optimization.skip_remainder_batch
    )


def _validate_and_save(
    trainer: Trainer,
    epochs: iterators.EpochBatchIterating,
    selection: Selection,
    stopping: Stopping,
    subsets: list[str],
    end_of_epoch: bool,
) -> tuple[float | None, bool]:
    """Validates and saves where it is time for it; returns the validation value, and whether the run ends."""
    cfg, updates = trainer.cfg, trainer.get_num_updates()
    is_last = stopping.agreed or _is_last_update(trainer)
    saves = is_last or (end_of_epoch and epochs.epoch % cfg.checkpoint.save_interval == 0)
    after_start = updates >= cfg.dataset.validate_after_updates
    saves |= after_start and _is_due(updates, cfg.checkpoint.save_interval_updates)
    validates = is_last or (saves and not end_of_epoch)
    validates |= end_of_epoch and epochs.epoch % cfg.dataset.validate_interval == 0
    validates |= _is_due(updates, cfg.dataset.validate_interval_updates)
    value = None
    if validates and after_start and subsets and not stopping.agreed:
        value = _validate(trainer, epochs.epoch, selection, subsets)
    if selection.ends(value):
        logger.info("early stop since valid performance hasn't improved for last %d runs", cfg.checkpoint.patience)
        is_last = True
    if saves or is_last:
        saving.save(trainer, epochs, selection, value)
    return value, is_last


def _is_due(updates: int, interval: int) -> bool:
    return interval > 0 and updates > 0 and updates % interval == 0


def _is_last_update(trainer: Trainer) -> bool:
    """Whether --max-update or --stop-time-hours ends the run."""
    options, updates = trainer.cfg.optimization, trainer.get_num_updates()
    if options.max_update and updates >= options.max_update:
        logger.info("Stopping training due to num_updates: %d >= max_update: %d", updates, options.max_update)
        return True
    hours = trainer.seconds() / 3600
    if 0 < options.stop_time_hours < hours:
        logger.info(
            "Stopping training due to cumulative_training_time: %s > stop_time_hours: %s hour(s)",
            hours,
            options.stop_time_hours,
        )
        return True
    return False


def _validate(trainer: Trainer, epoch: int, selection: Selection, subsets: list[str]) -> float | None:
    """Validates on each split; returns the value of --best-checkpoint-metric of the first one."""
    cfg = trainer.cfg
    if cfg.dataset.fixed_validation_seed is not None:
        utils.set_torch_seed(cfg.dataset.fixed_validation_seed)
    trainer.task.begin_valid_epoch(epoch, trainer.get_model())
    values = []
    for subset in subsets:
        logger.info('begin validation on "%s" subset', subset)
        batches = trainer.get_valid_iterator(subset).next_epoch_itr(shuffle=False, set_dataset_epoch=False)
        progress = log.progress_of(cfg, batches, epoch, training=False, prefix=f"valid on '{subset}' subset")
        with metrics.aggregate(new_root=True) as measured:
            for sample in _limited(progress, cfg.dataset.max_valid_steps):
                trainer.valid_step(sample)
        found = measured.get_smoothed_values()
        values.append(selection.checked(found, trainer, cfg.dataset.max_valid_steps))
        found["num_updates"] = trainer.get_num_updates()
        if len(values) == 1 and values[0] is not None:
            found |= selection.best_of(values[0])
        trainer.task.post_validate(trainer.get_model(), found, measured)
        progress.print(found, tag=subset, step=trainer.get_num_updates())
    return values[0]


def _limited(batches: Iterator, most: int | None) -> Iterator:
    """The batches of --max-valid-steps, and one more, as in fairseq."""
    for number, sample in enumerate(batches):
        if most is not None and number > most:
            return
        yield sample
