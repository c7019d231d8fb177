"""Shows the progress of a training from its log."""

import json
import re
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

ENTRY = re.compile(r"\{\"epoch\": .*\}$")


def summary(line: str, progress: dict[str, Any]) -> str | None:
    """Makes a readable line from a JSON entry of fairseq's log. Returns None for any other line.

    Args:
        line: a line of the log.
        progress: update limit, speed and time left of the last training entry; validation entries lack them. Training
            entries replace it.
    """
    found = ENTRY.search(line)
    if not found:
        return None
    try:
        entry = json.loads(found[0])
    except json.JSONDecodeError:  # an incomplete line
        return None
    kind = next((kind for kind in ("train_", "valid_") if f"{kind}loss" in entry), "")
    if kind == "train_":
        return None
    if not kind:
        progress.clear()
        progress.update({name: entry[name] for name in ("max_update", "wps", "seconds_left") if name in entry})
    of = f" of {progress['max_update']}" if "max_update" in progress else ""
    parts = [f"update {entry.get(f'{kind}num_updates', '?')}{of}"]
    parts += [f"{float(progress['wps']):,.0f} tokens/s"] if "wps" in progress else []
    parts += [f"{timedelta(seconds=int(progress['seconds_left']))} left"] if "seconds_left" in progress else []
    parts += [f"{kind.rstrip('_') or 'train'} loss {entry[f'{kind}loss']}"]
    parts += [f"ppl {entry[f'{kind}ppl']}"] if f"{kind}ppl" in entry else []
    return "  " + ", ".join(parts)


class Progress:
    """Writes the new entries of a growing log to stderr: warnings about text, validations, on a terminal updates too.

    Args:
        log: a file that fairseq-train's output is appended to.
        start: the byte at which the training's output begins.
    """

    def __init__(self, log: Path, start: int) -> None:
        self.log, self.place = log, start
        self.progress: dict[str, Any] = {}

    def show(self) -> None:
        """Reads the complete lines that were written since the last call."""
        with open(self.log, "rb") as file:
            file.seek(self.place)
            *lines, rest = file.read().split(b"\n")
            self.place = file.tell() - len(rest)
        terminal = sys.stderr.isatty()
        for line in (line.decode("utf-8", "replace") for line in lines):
            warned = line.startswith("warning: ")  # of `python -m preprocess`
            shown = f"  {line}" if warned else summary(line, self.progress)
            if shown and (warned or "valid" in shown or terminal):
                end = "\n" if warned or "valid" in shown else "\r"
                sys.stderr.write(f"{shown:<78}{end}" if terminal else f"{shown}{end}")
                sys.stderr.flush()
