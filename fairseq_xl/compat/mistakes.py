"""A user's mistake is one sentence on the screen, and not a traceback."""

import fileinput
import functools
import os
import re
import sys
import traceback
import warnings

import torch
from fairseq import options
from fairseq.dataclass import utils as dataclass_utils
from hydra.core.hydra_config import HydraConfig
from omegaconf.errors import OmegaConfBaseException

from fairseq_xl.compat.saving import NO_PLACE, NO_ROOM
from fairseq_xl.errors import UserError


def install() -> None:
    """Show mistakes in one sentence, and keep warnings away that a user can do nothing about."""
    sys.excepthook = _showing_mistakes(sys.excepthook)
    # in fairseq-hydra-train: hydra tells of errors in its own way unless it is asked to let them pass
    if HydraConfig.initialized():
        os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    options.parse_args_and_arch = _without_usage(options.parse_args_and_arch)
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
    raised = error
    while error is not None and not isinstance(error, torch.multiprocessing.ProcessRaisedException):
        if isinstance(error, UserError):
            break
        error = error.__cause__ or error.__context__  # fairseq wraps what goes wrong while weights are loaded
    # the error of a rank, or of a process that loads data, carries its traceback as text
    told = re.search(rf"^{UserError.__module__}\.{UserError.__name__}: (.*)$", str(error), re.MULTILINE)
    if told:
        return told.group(1)
    return str(error) if isinstance(error, UserError) else _of_the_machine(raised)


def _of_the_machine(error) -> "str | None":
    """A full disk, a file that is not to be had, input that is no text: mistakes wherever in fairseq they come up."""
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        where = f" of {error.filename}" if error.filename else ""
        return f"no room is left on the disk{where}: what was being written is cut short"
    if isinstance(error, OSError) and error.errno in NO_PLACE and error.filename:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, UnicodeDecodeError):
        files = {frame.filename for frame in traceback.extract_tb(error.__traceback__)}
        if fileinput.__file__ in files:  # that is how fairseq-interactive reads
            return f"the input is not UTF-8: it has the byte 0x{error.object[error.start]:02x}"
    return None


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


def _without_usage(original):
    """argparse writes hundreds of lines of usage in front of what is wrong, and all of fairseq's names after it."""

    @functools.wraps(original)
    def parse_args_and_arch(parser, *args, **kwargs):
        parser.error = functools.partial(_refuse_arguments, parser)
        return original(parser, *args, **kwargs)

    return parse_args_and_arch


def _refuse_arguments(parser, message):
    wrong, listed, choices = message.partition("(choose from ")
    if listed:
        ours = [name for name in re.findall(r"[\w.-]+", choices) if name.startswith("xl_")]
        wrong += f"(choose from {', '.join(ours)}, or fairseq's own)" if ours else f"(choose from {choices}"
    parser.exit(2, f"{parser.prog}: error: {wrong}\n")
