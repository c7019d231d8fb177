"""State of fairseq-train that it does not save, and its log file."""

import functools
import os
import sys

from fairseq.logging import progress_bar


def install() -> None:
    """Write every entry of --log-file once."""
    progress_bar.progress_bar = _logging_once(progress_bar.progress_bar)


def _early_stopping_functions() -> list:
    """fairseq keeps the state on its function; `python -m fairseq_cli.train` runs another one than an import gives."""
    modules = [sys.modules.get(name) for name in ("__main__", "fairseq_cli.train")]
    return [module.should_stop_early for module in modules if hasattr(module, "should_stop_early")]


def early_stopping() -> dict:
    """The best value that --patience compares with and how many validations it has waited, as far as there are any."""
    state = {}
    for function in _early_stopping_functions():
        state |= {name: getattr(function, name) for name in ("best", "num_runs") if hasattr(function, name)}
    return state


def restore_early_stopping(state: dict) -> None:
    """Put back what `early_stopping` returned."""
    for function in _early_stopping_functions():
        vars(function).update(state)


def _logging_once(original):
    """fairseq opens ``--log-file`` anew for every epoch and validation, and then writes every entry once for each."""

    @functools.wraps(original)
    def bar(*args, log_file=None, **kwargs):
        opened = {getattr(handler, "baseFilename", None) for handler in progress_bar.logger.handlers}
        if log_file is not None and os.path.abspath(log_file) in opened:
            log_file = None
        return original(*args, log_file=log_file, **kwargs)

    return bar
