"""The training loop of `fairseq-train` and `fairseq-hydra-train` for the tasks of this package."""

import logging
import logging.config
import math
import os
from typing import Any

from fairseq import tasks, utils
from fairseq.data import iterators
from fairseq.dataclass.initialize import add_defaults
from fairseq.distributed import utils as distributed_utils
from omegaconf import DictConfig, OmegaConf

from fairseq_xl.engine import resume, save_dir, saving
from fairseq_xl.engine.epochs import micro_steps_of
from fairseq_xl.engine.log import Log, shorten_console, written_to
from fairseq_xl.engine.metrics import Metrics
from fairseq_xl.engine.option_checks import check, split_update
from fairseq_xl.engine.selection import Selection, check_selection
from fairseq_xl.engine.stopping import Stopping
from fairseq_xl.engine.trainer import Trainer
from fairseq_xl.engine.unused_options import warn_of_unused
from fairseq_xl.errors import UserError
from fairseq_xl.io.signals import stops_handled_by

logger = logging.getLogger("fairseq_cli.train")  # its name in logs, which programs read


def main(cfg: DictConfig) -> "Run":
    """Trains a model by a configuration, or continues from the last checkpoint of --save-dir; returns the ended run.

    Raises `UserError` for wrong options and input, and for a training that diverges.
    """
    utils.import_user_module(cfg.common)
    add_defaults(cfg)
    check(cfg)
    split_update(cfg)
    with save_dir.lock(cfg):  # before the log of another training would be written to
        if distributed_utils.is_master(cfg.distributed_training) and "job_logging_cfg" in cfg:
            settings: Any = OmegaConf.to_container(cfg.job_logging_cfg)  # of fairseq-hydra-train
            logging.config.dictConfig(settings)
        shorten_console()
        with written_to(cfg.common.log_file):
            run = Run(cfg)
            has_file = cfg.common.log_file or cfg.checkpoint.no_save
            with written_to(None if has_file else os.path.join(cfg.checkpoint.save_dir, "train.log")):
                run.train()
    return run


class Run:
    """A training, from its first update or from its last checkpoint on.

    Attributes:
        trainer: makes the updates.
        epochs: the batches of the epoch, from the position of the checkpoint on.
        selection: the choice of the best checkpoint.
        stopping: the end of the run by a signal.
        subsets: the validation splits.
    """

    def __init__(self, cfg: DictConfig):
        utils.set_torch_seed(cfg.common.seed)
        task = tasks.setup_task(cfg.task)
        for name, value in task.stored_options().items():
            cfg.task[name] = value
        self.cfg, self.task = cfg, task
        model, criterion = task.build_model(cfg.model), task.build_criterion(cfg.criterion)
        self.subsets: list[str] = [] if cfg.dataset.disable_validation else cfg.dataset.valid_subset.split(",")
        for subset in self.subsets:  # training data is loaded when its first epoch is known
            task.load_dataset(subset, combine=False, epoch=1)
        self.trainer = Trainer(cfg, task, model, criterion)
        if not cfg.distributed_training.distributed_rank:
            warn_of_unused(cfg, task)
        task.begin_training()
        self.selection = Selection(cfg.checkpoint, bool(cfg.task.get("best_by_language")))
        self.stopping = Stopping()
        self.epochs = resume.restore(self.trainer, self.selection)

    def train(self) -> None:
        """Trains until a limit, such as --max-epoch or --patience, or a signal."""
        self.log = Log(self.trainer, self.epochs.next_epoch_idx)
        for subset in self.subsets:  # wrong data ends the run before it trains
            for _ in self.trainer.get_valid_iterator(subset).next_epoch_itr():
                pass
        with stops_handled_by(self.stopping.handle):
            if not resume.is_finished(self.trainer, self.selection):
                check_selection(self.cfg, self.task)
                self._train_epochs()
            if self.stopping.requested:
                logger.info("stopped: the same command resumes after update %d", self.trainer.get_num_updates())
            logger.info("done training in %.1f seconds", self.trainer.wall())

    def _train_epochs(self) -> None:
        cfg, trainer = self.cfg, self.trainer
        rate, sharded = trainer.get_lr(), self.task.has_sharded_data("train")
        last = cfg.optimization.max_epoch or math.inf
        while self.epochs.next_epoch_idx <= last:
            if rate <= cfg.optimization.stop_min_lr:
                logger.info("the learning rate %s is not above --stop-min-lr %s", rate, cfg.optimization.stop_min_lr)
                break
            value, is_last = self._train_epoch()
            if is_last:
                break
            rate = trainer.lr_step(self.epochs.epoch, value)
            if self.epochs.next_epoch_idx <= last:  # planning an epoch takes time
                self.epochs = trainer.get_train_iterator(self.epochs.next_epoch_idx, load_dataset=sharded)

    def _train_epoch(self) -> tuple[float | None, bool]:
        """Trains for an epoch; returns the last validation value, and whether the run ends."""
        batches = self.batches_by_update()
        self.log.epoch = self.epochs.epoch
        self.trainer.begin_epoch(self.epochs.epoch)
        value, is_last, hours = None, False, self.cfg.optimization.stop_time_hours
        if not batches.has_next():
            raise UserError(f"epoch {self.epochs.epoch} has no update: there are fewer batches than an update needs")
        for samples in batches:
            is_made = self.trainer.train_step(samples)
            self.stopping.agree(is_over=0 < hours < self.trainer.seconds() / 3600)
            if is_made:
                self.log.interval(batches)
            ends = not batches.has_next()
            if is_made or self.stopping.agreed or ends:  # not after each skipped update
                value, is_last = self._validate_and_save(ends)
            if is_last:
                break
        self.log.end_of_epoch()
        return value, is_last

    def batches_by_update(self) -> iterators.GroupedIterator:
        """The batches of the rest of an epoch, grouped by update."""
        batches = self.epochs.next_epoch_itr()
        steps = micro_steps_of(self.cfg.optimization.update_freq, self.epochs.epoch)
        skip_remainder = self.cfg.optimization.skip_remainder_batch
        return iterators.GroupedIterator(batches, steps, skip_remainder_batch=skip_remainder)

    def _validate_and_save(self, end_of_epoch: bool) -> tuple[float | None, bool]:
        """Validates and saves where either is due; returns the validation value, and whether the run ends."""
        cfg, updates, epoch = self.cfg, self.trainer.get_num_updates(), self.epochs.epoch
        is_last = self.stopping.agreed or self._is_last_update()
        saves = is_last or (end_of_epoch and epoch % cfg.checkpoint.save_interval == 0)
        after_start = updates >= cfg.dataset.validate_after_updates
        saves |= after_start and _is_due(updates, cfg.checkpoint.save_interval_updates)
        validates = is_last or (saves and not end_of_epoch)
        validates |= end_of_epoch and epoch % cfg.dataset.validate_interval == 0
        validates |= _is_due(updates, cfg.dataset.validate_interval_updates)
        value, by_language = None, {}
        if validates and after_start and self.subsets and not self.stopping.agreed:
            value, by_language = self._validate()
        if self.selection.ends(value):
            logger.info("early stop since valid performance hasn't improved for last %d runs", cfg.checkpoint.patience)
            is_last = True
        if saves or is_last:
            saving.save(self.trainer, self.epochs, self.selection, value, by_language)
        return value, is_last

    def _is_last_update(self) -> bool:
        """Whether --max-update or --stop-time-hours ends the run."""
        limits, updates = self.cfg.optimization, self.trainer.get_num_updates()
        if limits.max_update and updates >= limits.max_update:
            logger.info("Stopping training due to num_updates: %d >= max_update: %d", updates, limits.max_update)
        elif self.stopping.is_over:
            logger.info("Stopping training due to --stop-time-hours %s", limits.stop_time_hours)
        else:
            return False
        return True

    def _validate(self) -> tuple[float | None, dict[str, float]]:
        """Validates on each split; returns the value of --best-checkpoint-metric of the first one, and by language."""
        cfg, trainer = self.cfg, self.trainer
        if cfg.dataset.fixed_validation_seed is not None:
            utils.set_torch_seed(cfg.dataset.fixed_validation_seed)
        self.task.begin_valid_epoch(self.epochs.epoch, trainer.get_model())
        values, by_language = [], []
        for subset in self.subsets:
            metrics = Metrics()
            batches = trainer.get_valid_iterator(subset).next_epoch_itr()
            for step, sample in enumerate(self.log.batches(batches, subset)):
                if cfg.dataset.max_valid_steps is not None and step > cfg.dataset.max_valid_steps:
                    break  # after one more than --max-valid-steps, as in fairseq
                trainer.valid_step(sample, metrics)
            value = self.selection.validation_value(metrics.values(), trainer)
            best = self.selection.best_of(value) if value is not None and not values else {}
            values.append(value)
            by_language.append(self.selection.values_by_language(metrics.values()))
            self.task.end_validation(metrics, trainer.get_num_updates())
            self.log.validation(subset, metrics, best)
        return values[0], by_language[0]


def _is_due(updates: int, interval: int) -> bool:
    return interval > 0 and updates > 0 and updates % interval == 0
