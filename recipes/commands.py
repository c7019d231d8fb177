"""Runs the commands of a recipe one after the other, passes signals to the running one, and shows its progress."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

WIDTH = 118  # of a line of progress
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def started(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen]:
    """Starts a command in a new process group, for `signal_group`, with `options` of `subprocess.Popen`.

    Waits at the end for its children, too: on a signal a shell ends before the training that it runs.
    """
    read_end, write_end = os.pipe()  # the writing end stays open until the command and its children end
    with open(read_end, "rb") as ended, open(write_end, "wb") as held:
        process = subprocess.Popen(command, start_new_session=True, pass_fds=[write_end], **options)
        held.close()
        yield process
        ended.read()


def signal_group(process: subprocess.Popen, signal_number: int) -> None:
    """Sends a signal to the process group of a command: a training saves a checkpoint and ends."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal_number)


class Commands:
    """Runs commands; a failure ends the program with the command's exit status.

    A signal goes to the process group of the running command: a training saves a checkpoint and ends. No further
    command starts then. Signals that are ignored at the start of the program stay ignored.
    """

    def __init__(self) -> None:
        self.process: subprocess.Popen | None = None
        self.signal: int | None = None  # the signal that ends the program
        for signal_number in SIGNALS:
            if signal.getsignal(signal_number) != signal.SIG_IGN:
                signal.signal(signal_number, self.on_signal)

    def on_signal(self, signal_number: int, _: Any) -> None:
        self.signal = signal_number
        if self.process:
            signal_group(self.process, signal_number)

    def python(self, module: str, *arguments: str, **streams: Any) -> None:
        """Runs a Python module; raises the errors of `run`."""
        self.run("python", "-m", module, *arguments, **streams)

    def run(self, *command: str, **streams: Any) -> None:
        """Runs a command with the streams `stdin` and `stdout`. Raises `SystemExit` if it fails or a signal arrives."""
        status = 0
        if not self.signal:
            with started(command, **streams) as self.process:
                if self.signal:  # it arrived while the command started
                    signal_group(self.process, self.signal)
                status = self.process.wait()
            self.process = None
        if status:
            sys.exit(status if status > 0 else 128 - status)
        if self.signal:
            sys.exit(128 + self.signal)


class Progress:
    """Writes the new entries of a growing log to stderr: warnings about text, validations, on a terminal updates too.

    Args:
        log: log file of fairseq-train.
        start: byte at which the training's output begins.
    """

    def __init__(self, log: Path, start: int) -> None:
        self.log, self.position = log, start

    def show(self) -> None:
        """Shows the complete lines since the last call."""
        with open(self.log, "rb") as file:
            file.seek(self.position)
            *lines, rest = file.read().split(b"\n")
            self.position = file.tell() - len(rest)
        terminal = sys.stderr.isatty()
        for line in (line.decode("utf-8", "replace") for line in lines):
            warned = line.startswith("warning: ")  # of `fairseq-xl data prepare`
            message = line if warned else line.rpartition(" | INFO | ")[2].partition(" | ")[2]
            stays = warned or message.startswith("validation on ")
            if stays or (terminal and message.startswith("update ")):
                shown, end = f"  {message}"[:WIDTH], "\n" if stays else "\r"
                sys.stderr.write(f"{shown:<{WIDTH}}{end}" if terminal else f"{shown}{end}")
                sys.stderr.flush()
