"""What a training tells: all of it in --log-file, with times, and on the console how far it is."""

import datetime
import functools
import logging
import time

from fairseq import checkpoint_utils
from fairseq.logging import progress_bar

FORMAT, DATES = "%(asctime)s | %(levelname)s | %(name)s | %(message)s", "%Y-%m-%d %H:%M:%S"  # as on the console
FIRST = ("loss", "nll_loss", "ppl", "accuracy")
#: what fairseq measures of every training, always in the same order
OF_THE_RUN = {"wps", "ups", "wpb", "bsz", "num_updates", "lr", "gnorm", "clip", "loss_scale", "gb_free", "train_wall",
              "wall", "sample_size"}  # fmt: skip
#: loggers whose information is for train.log alone
DETAILS = ("fairseq.data.data_utils", "fairseq.data.iterators", "fairseq.tasks.fairseq_task")
DETAILS_OF_SAVING = ("Preparing to save", "State of", "Saving checkpoint to", "Finished saving", "num. expert model")

_run = None  # the trainer's optimization options, when the training began, and after which update
_file = None  # the handler of --log-file


def install() -> None:
    """Show progress in updates, tokens and time, metrics in one order, and nothing twice in --log-file."""
    logging.getLogger("hydra").setLevel(logging.INFO)  # for every command fairseq composes a configuration
    progress_bar.progress_bar = _without_a_file(progress_bar.progress_bar)
    for bar in (progress_bar.SimpleProgressBar, progress_bar.JsonProgressBar, progress_bar.TqdmProgressBar):
        bar.print = _in_order(bar.print)
    progress_bar.TqdmProgressBar.log = _in_order(progress_bar.TqdmProgressBar.log)
    progress_bar.SimpleProgressBar.log = _of_updates(progress_bar.SimpleProgressBar.log)
    progress_bar.JsonProgressBar.log = _with_pace(progress_bar.JsonProgressBar.log)
    bar = progress_bar.BaseProgressBar
    bar._format_stats = _without_nothing(bar._format_stats)
    checkpoint_utils.verify_checkpoint_directory = _after_take_over(checkpoint_utils.verify_checkpoint_directory)


def take_over() -> None:
    """Give the file of --log-file, which fairseq opens for two of its loggers, to all; keep the console short."""
    global _file
    root, trains = logging.getLogger(), logging.getLogger("fairseq_cli.train")
    for handler in [handler for handler in trains.handlers if isinstance(handler, logging.FileHandler)]:
        trains.removeHandler(handler)
        if _file is not None:  # of a run before in this process
            root.removeHandler(_file)
            _file.close()
        handler.setFormatter(logging.Formatter(FORMAT, DATES))
        root.addHandler(handler)
        _file = handler
    for handler in root.handlers:
        if type(handler) is logging.StreamHandler and is_short not in handler.filters:
            handler.addFilter(is_short)


def is_short(record) -> bool:
    """Whether a record is for the console: not the configuration, the model, or a detail of loading and saving."""
    if record.levelno > logging.INFO:
        return True
    if record.name == "fairseq_cli.train" and not isinstance(record.msg, str):
        return False
    return record.name not in DETAILS and not str(record.msg).startswith(DETAILS_OF_SAVING)


def begin(trainer) -> None:
    """Count time and updates from here on."""
    global _run
    take_over()  # on ranks that don't save too
    _run = trainer.cfg.optimization, time.monotonic(), trainer.get_num_updates()


def in_order(stats: dict) -> dict:
    """Statistics as they are shown: what is optimized and selected by, the others by name, then those of the run."""
    measured = [name for name in stats if name not in OF_THE_RUN and not name.startswith("best_")]
    measured.sort(key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name))
    return {name: stats[name] for name in [*measured, *(name for name in stats if name not in measured)]}


def pace(bar, stats: dict) -> dict:
    """The last update of the training and the seconds until then, as far as they are known.

    Args:
        bar: fairseq's progress bar of the epoch.
        stats: its statistics, with "num_updates".
    """
    if _run is None or "num_updates" not in stats:
        return {}
    options, began, before = _run
    made, seconds = int(stats["num_updates"]), time.monotonic() - began
    limits = [options.max_update] if options.max_update else []
    if options.max_epoch:
        limits.append(made + len(bar) * (options.max_epoch - bar.epoch + 1) - (bar.i + 1))
    if not limits:
        return {}
    last = max(min(limits), made)
    left = {"seconds_left": round((last - made) * seconds / (made - before))} if made > before else {}
    return {"max_update": last} | left


def _in_order(original):
    @functools.wraps(original)
    def show(self, stats, *args, **kwargs):
        return original(self, in_order(stats), *args, **kwargs)

    return show


def _with_pace(original):
    @functools.wraps(original)
    def log(self, stats, *args, **kwargs):
        return original(self, in_order(stats) | pace(self, stats), *args, **kwargs)

    return log


def _of_updates(original):
    """fairseq counts batches of the epoch."""

    @functools.wraps(original)
    def log(self, stats, tag=None, step=None):
        if "num_updates" not in stats:  # an evaluation
            return original(self, in_order(stats), tag, step)
        step = step or self.i or 0
        if step <= 0 or self.log_interval is None or step % self.log_interval:
            return
        found = pace(self, stats)
        parts = [f"update {step}" + (f" of {found['max_update']}" if found else "")]
        if stats.get("wps"):
            parts.append(f"{float(stats['wps']):,.0f} tokens/s")
        if "seconds_left" in found:
            parts.append(f"{datetime.timedelta(seconds=found['seconds_left'])} left")
        with progress_bar.rename_logger(progress_bar.logger, tag):
            shown = self._str_commas(self._format_stats(in_order(stats)))
            progress_bar.logger.info(f"{self.prefix}: {', '.join([*parts, shown])}")

    return log


def _without_nothing(original):
    """What has no value is not printed; JSON has it as null."""

    @functools.wraps(original)
    def format_stats(self, stats):
        return original(self, {name: value for name, value in stats.items() if value is not None})

    return format_stats


def _after_take_over(original):
    """The first thing that fairseq-train does with its folder, before it logs anything."""

    @functools.wraps(original)
    def verify_checkpoint_directory(save_dir):
        take_over()
        original(save_dir)

    return verify_checkpoint_directory


def _without_a_file(original):
    """fairseq opens --log-file anew for every epoch, and then writes every entry once for each."""

    @functools.wraps(original)
    def bar(*args, log_file=None, **kwargs):
        return original(*args, **kwargs)

    return bar
