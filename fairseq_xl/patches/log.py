"""Patch of fairseq's progress bars, which show the logging outputs of fairseq-validate: numbers only."""

import functools

from fairseq.logging import progress_bar


def install() -> None:
    """Leaves out vectors, such as sums of all languages, and metrics without a value."""
    bar = progress_bar.BaseProgressBar
    bar._format_stats = _of_numbers(bar._format_stats)


def _of_numbers(original):
    @functools.wraps(original)
    def format_stats(self, stats):
        """Formats the statistics that are numbers."""
        stats = {name: value for name, value in stats.items() if value is not None}
        return original(self, {name: value for name, value in stats.items() if not getattr(value, "ndim", 0)})

    return format_stats
