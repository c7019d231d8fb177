"""The log of a training: lines on the console, JSON in a file, and records of TensorBoard and similar services."""

import contextlib
import datetime
import json
import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from fairseq.distributed import utils as distributed_utils
from fairseq.logging import progress_bar
from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from fairseq_xl.engine.epochs import micro_steps_of
from fairseq_xl.engine.metrics import EPOCH, INTERVAL, Metrics
from fairseq_xl.errors import UserError

if TYPE_CHECKING:
    from fairseq_xl.engine.trainer import Trainer

logger = logging.getLogger("fairseq_cli.train")  # its name in logs, which programs read

FORMAT, DATES = "%(asctime)s | %(levelname)s | %(name)s | %(message)s", "%Y-%m-%d %H:%M:%S"
FIRST_METRICS = ("loss", "nll_loss", "ppl", "accuracy")
#: statistics of every training; they come last
RUN_METRICS = "wps ups wpb bsz num_updates lr gnorm clip loss_scale gb_free wall ema_decay".split()
#: loggers whose INFO records are for the file only
FILE_ONLY_LOGGERS = ("fairseq.data.data_utils", "fairseq.data.iterators", "fairseq.tasks.fairseq_task")
JSON = '{"epoch": '  # prefix of the JSON of statistics


@contextlib.contextmanager
def written_to(path: str | None) -> Iterator[None]:
    """Context in which all loggers also write to a file, if one is named; raises `UserError` if it cannot be opened."""
    if path is None:
        yield
        return
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        handler = _LogFile(path, encoding="utf-8")
    except OSError as error:
        raise UserError(f"--log-file {path}: {error.filename}: {error.strerror}") from error
    handler.setFormatter(logging.Formatter(FORMAT, DATES))
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        with contextlib.suppress(OSError):  # reported already
            handler.close()


@contextlib.contextmanager
def caller_logging() -> Iterator[None]:
    """Context in which log files get records of level INFO; the caller's handlers get the records of their own level.

    Without a handler, the console shows what fairseq-train shows. Afterwards all handlers are what they were.
    """
    root, console = logging.getLogger(), logging.StreamHandler(sys.stdout)
    level, attributes = root.level, {handler: dict(vars(handler)) for handler in root.handlers}
    for handler in attributes:
        handler.setLevel(max(handler.level, level))
    if not attributes:
        root.addHandler(console)
    root.setLevel(min(level, logging.INFO))
    try:
        yield
    finally:
        root.setLevel(level)
        root.removeHandler(console)
        for handler, values in attributes.items():
            vars(handler).update(values)


class _LogFile(logging.FileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (logging's name)
        """Warns that the file cannot be written, once; logging would show a traceback for each record."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        self.setLevel(logging.CRITICAL + 1)  # no record comes to it from here on
        with contextlib.suppress(OSError):  # what is left cannot be written either
            self.close()
        reason = f"cannot be written ({error.strerror}): training goes on without it"
        sys.stderr.write(f"fairseq_xl: warning: --log-file {self.baseFilename} {reason}\n")


def shorten_console() -> None:
    """Filters the records of the console, and adds their times; fairseq's commands set the format too late."""
    for handler in logging.getLogger().handlers:
        if type(handler) is logging.StreamHandler:
            handler.filters = [is_for_console]
            handler.setFormatter(logging.Formatter(FORMAT, DATES))


def is_for_console(record: logging.LogRecord) -> bool:
    """Whether a record is for people: not the configuration, the model, JSON, or details of loading data."""
    if record.levelno > logging.INFO:
        return True
    if record.name.startswith("fairseq_cli.") and not isinstance(record.msg, str):
        return False
    return record.name not in FILE_ONLY_LOGGERS and not str(record.msg).startswith(JSON)


def _batch_limits(dataset: Any, objectives: dict[str, Any]) -> str:
    """The limits of batches, those of objectives or else of the run, as text."""
    limits = []
    for options in (objective.cfg for objective in objectives.values()):
        sizes = {"tokens": options.batch_tokens, "examples": options.batch_sentences}
        if not any(sizes.values()):
            sizes = {"tokens": dataset.max_tokens, "examples": dataset.batch_size}
        limits.append(" and ".join(f"{size:,} {name}" for name, size in sizes.items() if size))
    return " or ".join(dict.fromkeys(limits))


class Log:
    """The records of a run, whose first update is the trainer's next one, in `epoch`."""

    def __init__(self, trainer: "Trainer", epoch: int):
        cfg = trainer.cfg
        self.cfg, self.trainer, self.epoch = cfg, trainer, epoch
        self._started, self._first_update = time.monotonic(), trainer.get_num_updates()
        self._is_master = distributed_utils.is_master(cfg.distributed_training)
        self._writers = _writers(cfg, self._is_master)
        logger.info(cfg)
        logger.info(trainer.get_model())
        sizes = [(parameter.numel(), parameter.requires_grad) for parameter in trainer.get_model().parameters()]
        total, trained = sum(size for size, _ in sizes), sum(size for size, is_trained in sizes if is_trained)
        logger.info(f"parameters: {total:,}, {trained:,} of them trained ({cfg.model._name}, {cfg.task._name})")
        device = torch.cuda.get_device_name(trainer.device) if trainer.device.type == "cuda" else "CPU"
        logger.info(f"device: {device}, precision: {trainer.optimizer.precision}")
        logger.info(f"processes: {trainer.world_size}")
        batches = trainer.world_size * micro_steps_of(cfg.optimization.update_freq, epoch)
        limits = _batch_limits(cfg.dataset, trainer.task.objectives)
        share = f", {batches // trainer.world_size} of each process" if cfg.task.get("batches_per_update") else ""
        logger.info(f"an update: {batches} batch{'es' if batches > 1 else ''} of at most {limits}{share}")
        last, updates = cfg.optimization.max_update, trainer.get_num_updates()
        until = [f"update {last:,}"] if last else []
        until += [f"epoch {cfg.optimization.max_epoch}"] if cfg.optimization.max_epoch else []
        folder = "no checkpoints" if cfg.checkpoint.no_save else f"checkpoints in {cfg.checkpoint.save_dir}"
        logger.info(f"updates: from {updates:,} (epoch {epoch}) to {' or '.join(until) or 'a signal'}; {folder}")

    def batches(self, batches: Any, split: str) -> Any:
        """The batches of a validation, with a progress bar on a terminal."""
        common = self.cfg.common
        shown = self._is_master and not common.no_progress_bar and common.log_format != "none"
        return tqdm(batches, f"validation on {split}", leave=False, disable=None if shown else True)

    def interval(self, batches: Any) -> None:
        """Logs the statistics since the last interval, if one ends; `batches` are those of the epoch, by update."""
        updates = self.trainer.get_num_updates()
        if updates % self.cfg.common.log_interval:
            return
        limits = [self.cfg.optimization.max_update] if self.cfg.optimization.max_update else []
        if self.cfg.optimization.max_epoch:
            limits.append(updates + len(batches) * (self.cfg.optimization.max_epoch - self.epoch + 1) - batches.n)
        progress = {}
        if limits:
            last, done_updates = max(min(limits), updates), updates - self._first_update
            seconds = (last - updates) * (time.monotonic() - self._started) / done_updates
            progress = {"max_update": str(last), "seconds_left": str(round(seconds))}
        position = {"epoch": self.epoch, "update": round(self.epoch - 1 + batches.n / len(batches), 3)}
        statistics = ordered(self.trainer.metrics.values(INTERVAL))
        self.trainer.metrics.reset(INTERVAL)
        logging.getLogger(INTERVAL).info(json.dumps(position | _formatted(statistics) | progress))
        self._writers.log(statistics, tag=INTERVAL, step=updates)
        speed = [f"{float(statistics['wps']):,.0f} tokens/s"] if statistics.get("wps") else []
        remaining = [f"{datetime.timedelta(seconds=round(seconds))} left"] if limits else []
        title = f"update {updates:,}" + (f" of {last:,}" if limits else "")
        rates = f"lr {statistics['lr']:g}", f"gradient norm {statistics['gnorm']:g}"
        self._show(INTERVAL, title, *self._losses(statistics), *speed, *remaining, *rates)

    def end_of_epoch(self) -> None:
        statistics = ordered(self.trainer.metrics.values(EPOCH))
        self.trainer.metrics.reset(EPOCH)
        self._write(EPOCH, statistics)
        title = f"epoch {self.epoch} until update {self.trainer.get_num_updates():,}"
        self._show(EPOCH, title, *self._losses(statistics))

    def validation(self, split: str, metrics: Metrics, best: dict[str, float]) -> None:
        """Logs the statistics of a validation, and {name: the best value of the metric that selects checkpoints}."""
        statistics = ordered(metrics.values() | {"num_updates": self.trainer.get_num_updates()} | best)
        self._write(split, statistics)
        names = [name for name, value in statistics.items() if name not in RUN_METRICS and value is not None]
        title = f"validation on {split} after update {self.trainer.get_num_updates():,}"
        self._show(split, title, *(f"{name} {_text(statistics[name])}" for name in names))

    def _losses(self, statistics: Mapping[str, Any]) -> list[str]:
        """The losses and metrics of an update over all languages."""
        languages = set(self.trainer.task.dictionary.text_languages)

        def names_language(name: str) -> bool:
            return any(set(part.split("-")) <= languages for part in name.split("_"))

        names = [name for name in statistics if name not in RUN_METRICS and not name.endswith("ppl")]
        names = [name for name in names if statistics[name] is not None and not names_language(name)]
        return [f"{name} {_text(statistics[name])}" for name in names]

    def _write(self, name: str, statistics: dict[str, Any]) -> None:
        """Writes the statistics of an epoch or a validation as JSON, and for TensorBoard and others."""
        logging.getLogger(name).info(json.dumps({"epoch": self.epoch} | _formatted(statistics, f"{name}_")))
        self._writers.print(statistics, tag=name, step=self.trainer.get_num_updates())

    def _show(self, name: str, *parts: str) -> None:
        """Writes a line for people."""
        if self.cfg.common.log_format != "none":
            logging.getLogger(name).info(" | ".join(parts))


def _writers(cfg: DictConfig, is_master: bool) -> Any:
    """fairseq's writers for TensorBoard, W&B, Aim and Azure ML, by the options, on the first rank."""
    names = ("aim_repo", "aim_run_hash", "tensorboard_logdir", "wandb_project", "azureml_logging")
    writers = progress_bar.progress_bar(
        [],
        log_format="none",
        aim_param_checkpoint_dir=cfg.checkpoint.save_dir,
        wandb_run_name=os.environ.get("WANDB_NAME", os.path.basename(cfg.checkpoint.save_dir)),
        **{name: cfg.common[name] for name in names if is_master},
    )
    writers.update_config(OmegaConf.to_container(cfg))
    return writers


def _formatted(statistics: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Statistics as fairseq writes them in JSON: floats as text of six digits, integers with all digits."""
    return {f"{prefix}{name}": None if value is None else _text(value) for name, value in statistics.items()}


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def log_batches(metrics: Metrics, logging_outputs: Sequence[Mapping[str, Any]], criterion: Any) -> None:
    """Logs the sizes of the batches of an update or a validation step, and the statistics of the criterion.

    `logging_outputs` are those of all micro-steps, or their sum over ranks.
    """
    tokens, sentences = (sum(log[name] for log in logging_outputs) for name in ("ntokens", "nsentences"))
    metrics.average("wpb", tokens, digits=1)
    metrics.rate("wps", tokens, 1)
    metrics.average("bsz", sentences, digits=1)
    criterion.log(metrics, logging_outputs)


def ordered(stats: Mapping[str, Any]) -> dict[str, Any]:
    """Sorts statistics: `FIRST_METRICS`, the rest by name, then `RUN_METRICS` and best values."""
    measured = [name for name in stats if name not in RUN_METRICS and not name.startswith("best_")]
    measured.sort(key=lambda name: (FIRST_METRICS.index(name) if name in FIRST_METRICS else len(FIRST_METRICS), name))
    last = [name for name in (*RUN_METRICS, *stats) if name in stats and name not in measured]
    return {name: stats[name] for name in [*measured, *last]}
