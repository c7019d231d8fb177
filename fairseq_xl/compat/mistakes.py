"""A user's mistake is one sentence on the screen, and not a traceback."""

import re
import sys
import warnings

import torch

from fairseq_xl.errors import UserError


def install() -> None:
    """Show mistakes in one sentence, and keep warnings away that a user can do nothing about."""
    sys.excepthook = _showing_mistakes(sys.excepthook)
    # fairseq asks for pinned memory and for the old name of autocast whatever the machine
    warnings.filterwarnings("ignore", message=".*pin_memory.*no accelerator")
    warnings.filterwarnings("ignore", message=".*torch.cuda.amp.autocast", category=FutureWarning)


def _showing_mistakes(previous):
    """An excepthook that shows a user's mistake in one sentence; the interpreter then exits with status 1."""

    def show(kind, error, trace):
        sentence = _sentence(error)
        if sentence is None:
            previous(kind, error, trace)
        else:
            sys.stderr.write(f"fairseq_xl: error: {sentence}\n")

    return show


def _sentence(error) -> "str | None":
    while error is not None and not isinstance(error, torch.multiprocessing.ProcessRaisedException):
        if isinstance(error, UserError):
            return str(error)
        error = error.__cause__ or error.__context__  # fairseq wraps what goes wrong while weights are loaded
    # a rank's error carries its traceback as text
    told = re.search(rf"^{UserError.__module__}\.{UserError.__name__}: (.*)$", str(error), re.MULTILINE)
    return told and told.group(1)
