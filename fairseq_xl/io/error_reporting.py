"""Shows errors that the user can correct as one sentence, without a traceback. Imports neither torch nor fairseq."""

import errno
import re
import sys
from collections.abc import Callable
from typing import Any

from fairseq_xl.errors import UserError
from fairseq_xl.io.files import NO_PLACE, NO_ROOM, SIZE_LIMIT
from fairseq_xl.io.text import use_utf8

NO_MEMORY = "DefaultCPUAllocator: can't allocate memory"  # a RuntimeError of torch


def install() -> None:
    """Makes uncaught exceptions show `message`, and standard streams UTF-8: for commands, importing doesn't call it."""
    use_utf8()
    if getattr(sys.excepthook, "__module__", None) != __name__:
        sys.excepthook = showing_messages(sys.excepthook)


def showing_messages(previous: Callable[..., Any]) -> Callable[..., None]:
    """An excepthook that shows `message` of an exception, or that Ctrl-C ended the command, or calls `previous`."""

    def show(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        ended = isinstance(error, RuntimeError) and isinstance(error.__cause__, (KeyboardInterrupt, SystemExit))
        sentence = "interrupted" if ended or isinstance(error, KeyboardInterrupt) else message(error)
        if sentence is None:
            previous(kind, error, trace)
        else:
            sys.stderr.write(f"fairseq_xl: error: {sentence}\n")

    return show


def message(error: BaseException | None) -> "str | None":
    """The sentence that describes a user's error; None for a defect of the program."""
    raised = error
    while error is not None and type(error).__name__ != "ProcessRaisedException":  # torch's, of a spawned process
        if isinstance(error, UserError):
            break
        error = error.__cause__ or error.__context__  # fairseq wraps errors raised while it loads weights
    # an error of a rank, or of a process that loads data, carries its traceback as text
    match = re.search(rf"^{UserError.__module__}\.{UserError.__name__}: (.*)$", str(error), re.MULTILINE)
    if match:
        return match.group(1)
    return str(error) if isinstance(error, UserError) else _system_message(raised)


def _system_message(error: Any) -> "str | None":
    """The message of a full disk or memory, an unreadable file or input that is not text; None for other errors."""
    if type(error).__name__ == "OutOfMemoryError":  # torch's, of a GPU
        return f"there isn't enough memory on the GPU: smaller batches need less ({' '.join(str(error).split())[:200]})"
    if isinstance(error, MemoryError) or NO_MEMORY in str(error):
        return f"there is not enough memory ({' '.join(str(error).split())[:200] or 'of this process'})"
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        if error.errno == errno.EFBIG:
            where = f" for {error.filename}" if error.filename else ""
            return f"{SIZE_LIMIT}{where}: what was being written is cut short"
        where = f" of {error.filename}" if error.filename else ""
        return f"no room is left on the disk{where}: what was being written is cut short"
    if isinstance(error, OSError) and error.errno in NO_PLACE and error.filename:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, AssertionError) and str(error).startswith("Must specify batch size"):
        return "--max-tokens or --batch-size is missing: set one of them, the size of a batch"
    if isinstance(error, ValueError) and str(error).startswith("Seed must be between"):  # of numpy
        return f"--seed: {error}"
    if type(error).__name__ == "MissingMandatoryValue":  # omegaconf's, for an option that --bpe or --tokenizer needs
        return f"--{str(error).splitlines()[0].rpartition(' ')[2].replace('_', '-')} is missing"
    fields = getattr(getattr(error, "object_type", None), "__dataclass_fields__", None)
    if fields is not None:  # omegaconf's, of fairseq-hydra-train: an option that is not there or has another type
        from fairseq_xl.io.configuration import section_of

        options = ", ".join(name for name in fields if name != "_name")
        section, reason = section_of(error.object_type), str(error).splitlines()[0]
        return section and f"{section}.{error.key}: {reason} (options: {options})"
    return None
