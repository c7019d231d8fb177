"""Patches of fairseq's progress bars: progress in updates, tokens and time, and metrics in a fixed order."""

import datetime
import functools
import logging

from fairseq.logging import progress_bar

from fairseq_xl.engine.log import ordered, progress, shorten_console


def install() -> None:
    """Shows progress in updates, tokens and time, metrics in a fixed order, and each record once in --log-file."""
    logging.getLogger("hydra").setLevel(logging.INFO)  # hydra logs at DEBUG when fairseq composes its configuration
    shorten_console()
    for bar in (progress_bar.SimpleProgressBar, progress_bar.JsonProgressBar, progress_bar.TqdmProgressBar):
        bar.print = _order_metrics(bar.print)
    progress_bar.TqdmProgressBar.log = _order_metrics(progress_bar.TqdmProgressBar.log)
    progress_bar.SimpleProgressBar.log = _count_updates(progress_bar.SimpleProgressBar.log)
    progress_bar.JsonProgressBar.log = _add_progress(progress_bar.JsonProgressBar.log)
    bar = progress_bar.BaseProgressBar
    bar._format_stats = _drop_missing_values(bar._format_stats)


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
