"""Patches of logging: short records with times and progress on the console, all records of training in --log-file."""

import contextlib
import datetime
import functools
import logging
import os
import sys
import time

import torch
from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.logging import progress_bar

FORMAT, DATES = "%(asctime)s | %(levelname)s | %(name)s | %(message)s", "%Y-%m-%d %H:%M:%S"  # as on the console
FIRST_METRICS = ("loss", "nll_loss", "ppl", "accuracy")
#: metrics that fairseq logs in every training; they come last
RUN_METRICS = set("wps ups wpb bsz num_updates lr gnorm clip loss_scale gb_free train_wall wall sample_size".split())
#: loggers and beginnings of messages whose INFO records go to --log-file only
FILE_ONLY_LOGGERS = ("fairseq.data.data_utils", "fairseq.data.iterators", "fairseq.tasks.fairseq_task")
FILE_ONLY_MESSAGES = ("Preparing to save", "State of", "Saving checkpoint to", "Finished saving", "num. expert model")

#: hours of training after which a training ends that received a signal
STOP_HOURS = 1e-9

_run = None  # optimization options, start time and first update of the current training
_file = None  # the handler of --log-file


def install() -> None:
    """Shows progress in updates, tokens and time, metrics in a fixed order, and each record once in --log-file."""
    logging.getLogger("hydra").setLevel(logging.INFO)  # hydra logs at DEBUG when fairseq composes its configuration
    _shorten_console()
    progress_bar.progress_bar = _without_log_file(progress_bar.progress_bar)
    for bar in (progress_bar.SimpleProgressBar, progress_bar.JsonProgressBar, progress_bar.TqdmProgressBar):
        bar.print = _order_metrics(bar.print)
    progress_bar.TqdmProgressBar.log = _order_metrics(progress_bar.TqdmProgressBar.log)
    progress_bar.SimpleProgressBar.log = _count_updates(progress_bar.SimpleProgressBar.log)
    progress_bar.JsonProgressBar.log = _add_progress(progress_bar.JsonProgressBar.log)
    bar = progress_bar.BaseProgressBar
    bar._format_stats = _drop_missing_values(bar._format_stats)
    distributed_utils.call_main = _make_folder_of_log_file(distributed_utils.call_main)
    checkpoint_utils.verify_checkpoint_directory = _attach_log_file_first(checkpoint_utils.verify_checkpoint_directory)


def attach_log_file() -> None:
    """Attaches --log-file, which fairseq opens for two of its loggers, to the root logger, and filters the console."""
    global _file
    root, trains = logging.getLogger(), logging.getLogger("fairseq_cli.train")
    for handler in [handler for handler in trains.handlers if isinstance(handler, logging.FileHandler)]:
        trains.removeHandler(handler)
        if _file is not None:  # of an earlier run in this process
            root.removeHandler(_file)
            _file.close()
        handler.setFormatter(logging.Formatter(FORMAT, DATES))
        handler.handleError = functools.partial(_close_after_error, handler)
        handler.stream.reconfigure(encoding="utf-8")  # fairseq opens it in the encoding of the locale
        root.addHandler(handler)
        _file = handler
    _shorten_console()


def _close_after_error(handler, record) -> None:
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


def _shorten_console() -> None:
    """Filters the records of the console and shows their times; fairseq's commands set the format too late."""
    for handler in logging.getLogger().handlers:
        if type(handler) is logging.StreamHandler and is_for_console not in handler.filters:
            handler.addFilter(is_for_console)
            handler.setFormatter(logging.Formatter(FORMAT, DATES))


def is_for_console(record) -> bool:
    """Whether a record goes to the console: not the configuration, the model, or details of loading and saving."""
    if record.levelno > logging.INFO:
        return True
    if record.name.startswith("fairseq_cli.") and not isinstance(record.msg, str):
        return False
    message = str(record.msg)
    if message.endswith(f"stop_time_hours: {STOP_HOURS} hour(s)"):  # of a signal, which has a record of its own
        return False
    return record.name not in FILE_ONLY_LOGGERS and not message.startswith(FILE_ONLY_MESSAGES)


def start_clock(trainer) -> None:
    """Measures time and updates of a training from here on."""
    global _run
    attach_log_file()  # a second call: ranks that save nothing have not made the first
    _run = trainer.cfg.optimization, time.monotonic(), trainer.get_num_updates()


def ordered(stats: dict) -> dict:
    """Statistics in the order shown: `FIRST_METRICS`, the others by name, then `RUN_METRICS` and best values.

    Vectors are left out: fairseq-validate shows logging outputs, which hold sums of all languages.
    """
    stats = {name: value for name, value in stats.items() if not (torch.is_tensor(value) and value.ndim)}
    measured = [name for name in stats if name not in RUN_METRICS and not name.startswith("best_")]
    measured.sort(key=lambda name: (FIRST_METRICS.index(name) if name in FIRST_METRICS else len(FIRST_METRICS), name))
    return {name: stats[name] for name in [*measured, *(name for name in stats if name not in measured)]}


def progress(bar, stats: dict) -> dict:
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


def _order_metrics(original):
    @functools.wraps(original)
    def show(self, stats, *args, **kwargs):
        """Shows statistics in their fixed order."""
        return original(self, ordered(stats), *args, **kwargs)

    return show


def _add_progress(original):
    @functools.wraps(original)
    def log(self, stats, *args, **kwargs):
        """Shows statistics in their fixed order, and the progress of the training."""
        return original(self, ordered(stats) | progress(self, stats), *args, **kwargs)

    return log


def _count_updates(original):
    """Shows the number of updates of the training, where fairseq shows batches of the epoch."""

    @functools.wraps(original)
    def log(self, stats, tag=None, step=None):
        """Shows updates, statistics and time left in one line."""
        if "num_updates" not in stats:  # not a training
            return original(self, ordered(stats), tag, step)
        step = step or self.i or 0
        if step <= 0 or self.log_interval is None or step % self.log_interval:
            return
        found = progress(self, stats)
        parts = [f"update {step}" + (f" of {found['max_update']}" if found else "")]
        if stats.get("wps"):
            parts.append(f"{float(stats['wps']):,.0f} tokens/s")
        if "seconds_left" in found:
            parts.append(f"{datetime.timedelta(seconds=found['seconds_left'])} left")
        with progress_bar.rename_logger(progress_bar.logger, tag):
            shown = self._str_commas(self._format_stats(ordered(stats)))
            progress_bar.logger.info(f"{self.prefix}: {', '.join([*parts, shown])}")

    return log


def _drop_missing_values(original):
    """Leaves out metrics without a value; JSON logs have them as null."""

    @functools.wraps(original)
    def format_stats(self, stats):
        """Formats the statistics that have a value."""
        return original(self, {name: value for name, value in stats.items() if value is not None})

    return format_stats


def _attach_log_file_first(original):
    """Attaches the log file in the first step of fairseq-train, before it logs anything."""

    @functools.wraps(original)
    def verify_checkpoint_directory(save_dir):
        """Attaches the log file, then tests the folder as fairseq does."""
        attach_log_file()
        original(save_dir)

    return verify_checkpoint_directory


def _make_folder_of_log_file(original):
    """Makes the folder of --log-file, such as --save-dir, which fairseq opens before it makes --save-dir."""

    @functools.wraps(original)
    def call_main(cfg, main, **kwargs):
        """Makes the folder of --log-file, then runs the command."""
        if cfg.common.log_file:
            os.makedirs(os.path.dirname(os.path.abspath(cfg.common.log_file)), exist_ok=True)
        return original(cfg, main, **kwargs)

    return call_main


def _without_log_file(original):
    """Keeps --log-file from progress bars: fairseq opens it again in each epoch and then repeats every record."""

    @functools.wraps(original)
    def bar(*args, log_file=None, **kwargs):
        """Makes a progress bar without the log file."""
        return original(*args, **kwargs)

    return bar
