"""Shows the progress of a training from its log."""

import sys
from pathlib import Path

WIDTH = 118  # of a line


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
            warned = line.startswith("warning: ")  # of `python -m preprocess`
            message = line if warned else line.rpartition(" | INFO | ")[2].partition(" | ")[2]
            stays = warned or message.startswith("validation on ")
            if stays or (terminal and message.startswith("update ")):
                shown, end = f"  {message}"[:WIDTH], "\n" if stays else "\r"
                sys.stderr.write(f"{shown:<{WIDTH}}{end}" if terminal else f"{shown}{end}")
                sys.stderr.flush()
