"""What a training logs: lines on the console, all records in --log-file, statistics through fairseq's progress bars."""

import contextlib
import functools
import logging
import os
import sys
import time
from typing import Any

import torch
from fairseq.distributed import utils as distributed_utils
from fairseq.logging import metrics, progress_bar
from omegaconf import DictConfig, OmegaConf
from torch import nn

from fairseq_xl.engine.interfaces import Task
from fairseq_xl.errors import UserError

logger = logging.getLogger("fairseq_cli.train")  # its name in logs, which programs read

FORMAT, DATES = "%(asctime)s | %(levelname)s | %(name)s | %(message)s", "%Y-%m-%d %H:%M:%S"  # as on the console
FIRST_METRICS = ("loss", "nll_loss", "ppl", "accuracy")
#: metrics that fairseq logs in every training; they come last
RUN_METRICS = set("wps ups wpb bsz num_updates lr gnorm clip loss_scale gb_free train_wall wall sample_size".split())
#: loggers and beginnings of messages whose INFO records go to --log-file only
FILE_ONLY_LOGGERS = ("fairseq.data.data_utils", "fairseq.data.iterators", "fairseq.tasks.fairseq_task")
FILE_ONLY_MESSAGES = ("Preparing to save", "State of", "Saving checkpoint to", "Finished saving", "num. expert model")

_run = None  # optimization options, start time and first update of the current training
_file: logging.FileHandler | None = None  # the handler of --log-file


def open_log_file(path: str | None) -> None:
    """Makes all loggers write to --log-file, in place of that of an earlier run, and filters the console.

    Raises `UserError` for a file that cannot be opened.
    """
    global _file
    root = logging.getLogger()
    if _file is not None:
        root.removeHandler(_file)
        _file.close()
        _file = None
    if path is not None:
        try:
            os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
            _file = logging.FileHandler(path, encoding="utf-8")
        except OSError as error:
            raise UserError(f"--log-file {path}: {error.strerror}") from error
        _file.setFormatter(logging.Formatter(FORMAT, DATES))
        _file.handleError = functools.partial(_close_after_error, _file)  # type: ignore[method-assign]
        root.addHandler(_file)
    shorten_console()


def _close_after_error(handler: logging.FileHandler, record: logging.LogRecord) -> None:
    """Warns that --log-file cannot be written, once; logging would show a traceback for each record."""
    error = sys.exc_info()[1]
    if not isinstance(error, OSError):
        logging.Handler.handleError(handler, record)
        return
    handler.setLevel(logging.CRITICAL + 1)  # no record comes to it from here on
    with contextlib.suppress(OSError):  # what is left cannot be written either
        handler.close()
    sys.stderr.write(
        f"fairseq_xl: warning: --log-file {handler.baseFilename} cannot be written ({error.strerror}): training goes "
        "on without it\n"
    )


def shorten_console() -> None:
    """Filters the records of the console and shows their times; fairseq's commands set the format too late."""
    for handler in logging.getLogger().handlers:
        if type(handler) is logging.StreamHandler and is_for_console not in handler.filters:
            handler.addFilter(is_for_console)
            handler.setFormatter(logging.Formatter(FORMAT, DATES))


def is_for_console(record: logging.LogRecord) -> bool:
    """Whether a record goes to the console: not the configuration, the model, or details of loading and saving."""
    if record.levelno > logging.INFO:
        return True
    if record.name.startswith("fairseq_cli.") and not isinstance(record.msg, str):
        return False
    return record.name not in FILE_ONLY_LOGGERS and not str(record.msg).startswith(FILE_ONLY_MESSAGES)


def start_clock(cfg: DictConfig, updates: int) -> None:
    """Measures time and updates of a training from here on."""
    global _run
    _run = cfg.optimization, time.monotonic(), updates


def model(task: Task, built: nn.Module, criterion: nn.Module) -> None:
    """Logs what is trained."""
    logger.info(built)
    for kind, each in (("task", task), ("model", built), ("criterion", criterion)):
        logger.info("%s: %s", kind, type(each).__name__)
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in built.parameters()]
    every, trained = sum(size for size, _ in sizes), sum(size for size, is_trained in sizes if is_trained)
    logger.info(f"num. shared model params: {every:,} (num. trained: {trained:,})")


def batches(cfg: DictConfig) -> None:
    """Logs the processes and the limits of their batches."""
    logger.info("training on %d devices (GPUs/TPUs)", cfg.distributed_training.distributed_world_size)
    limits = cfg.dataset.max_tokens, cfg.dataset.batch_size
    logger.info("max tokens per device = %s and max sentences per device = %s", *limits)


def progress_of(cfg: DictConfig, updates: Any, epoch: int, training: bool, prefix: str | None = None) -> Any:
    """fairseq's progress bar over the updates of an epoch, or the batches of a validation."""
    common, is_master = cfg.common, distributed_utils.is_master(cfg.distributed_training)
    bar = progress_bar.progress_bar(
        updates,
        log_format=common.log_format,
        log_interval=common.log_interval,
        epoch=epoch,
        prefix=prefix,
        aim_repo=common.aim_repo if is_master else None,
        aim_run_hash=common.aim_run_hash if is_master else None,
        aim_param_checkpoint_dir=cfg.checkpoint.save_dir,
        tensorboard_logdir=common.tensorboard_logdir if is_master else None,
        default_log_format="simple" if common.no_progress_bar else "tqdm",
        wandb_project=common.wandb_project if is_master else None,
        wandb_run_name=os.environ.get("WANDB_NAME", os.path.basename(cfg.checkpoint.save_dir)),
        azureml_logging=training and common.azureml_logging and is_master,
    )
    if training:
        bar.update_config(OmegaConf.to_container(cfg))
    return bar


def update(progress: Any, updates: int, interval: int) -> None:
    """Logs the statistics since the last interval, if this update ends one."""
    if updates % interval == 0:
        progress.log(statistics("train_inner"), tag="train_inner", step=updates)
        metrics.reset_meters("train_inner")


def statistics(name: str) -> dict[str, Any]:
    """The statistics of an aggregator of fairseq's `metrics`."""
    found: dict[str, Any] = metrics.get_smoothed_values(name)
    return found | {"wall": round(metrics.get_meter("default", "wall").elapsed_time, 0)}


def ordered(stats: dict) -> dict:
    """Statistics in the order shown: `FIRST_METRICS`, the others by name, then `RUN_METRICS` and best values.

    Vectors are left out: fairseq-validate shows logging outputs, which hold sums of all languages.
    """
    stats = {name: value for name, value in stats.items() if not (torch.is_tensor(value) and value.ndim)}
    measured = [name for name in stats if name not in RUN_METRICS and not name.startswith("best_")]
    measured.sort(key=lambda name: (FIRST_METRICS.index(name) if name in FIRST_METRICS else len(FIRST_METRICS), name))
    return {name: stats[name] for name in [*measured, *(name for name in stats if name not in measured)]}


def progress(bar: Any, stats: dict[str, Any]) -> dict[str, int]:
    """Returns "max_update", the last update of the training, and "seconds_left" until then, where they are known.

    Args:
        bar: fairseq's progress bar of the epoch.
        stats: statistics that the bar shows; without "num_updates" nothing is known.
    """
    if _run is None or "num_updates" not in stats:
        return {}
    options, start, first_update = _run
    update, seconds = int(stats["num_updates"]), time.monotonic() - start
    limits = [options.max_update] if options.max_update else []
    if options.max_epoch:
        limits.append(update + len(bar) * (options.max_epoch - bar.epoch + 1) - (bar.i + 1))
    if not limits:
        return {}
    last = max(min(limits), update)
    left = {"seconds_left": round((last - update) * seconds / (update - first_update))} if update > first_update else {}
    return {"max_update": last} | left
