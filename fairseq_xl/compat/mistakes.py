"""A user's mistake is one sentence on the screen, and not a traceback."""

import functools
import os
import re
import sys
import warnings

import torch
from fairseq.dataclass import utils as dataclass_utils
from hydra.core.hydra_config import HydraConfig
from omegaconf.errors import OmegaConfBaseException

from fairseq_xl.errors import UserError


def install() -> None:
    """Show mistakes in one sentence, and keep warnings away that a user can do nothing about."""
    sys.excepthook = _showing_mistakes(sys.excepthook)
    # in fairseq-hydra-train: hydra tells of errors in its own way unless it is asked to let them pass
    if HydraConfig.initialized():
        os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    dataclass_utils.merge_with_parent = _naming_options(dataclass_utils.merge_with_parent)
    # every command of fairseq calls hydra as it was years ago; one warning comes without the place that asked for it
    warnings.filterwarnings("ignore", category=UserWarning, module=r"hydra\.")
    warnings.filterwarnings("ignore", message=r"\n'\w+' is validated against ConfigStore", category=UserWarning)
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


def _naming_options(original):
    """fairseq-hydra-train knows a plugin's options only once it runs: an unknown or ill-typed one is a mistake."""

    @functools.wraps(original)
    def merge_with_parent(dataclass, cfg, *args, **kwargs):
        try:
            return original(dataclass, cfg, *args, **kwargs)
        except OmegaConfBaseException as error:
            known = ", ".join(name for name in dataclass.__dataclass_fields__ if name != "_name")
            reason = str(error).splitlines()[0]
            raise UserError(f"{cfg._get_full_key(error.key)}: {reason} (options: {known})") from error

    return merge_with_parent
