"""Writes a training log and shows the progress: ``fairseq-train … 2>&1 | python recipes/progress.py LOG``."""

import json
import re
import signal
import sys
from datetime import timedelta

ENTRY = re.compile(r"\{\"epoch\": .*\}$")


def summary(line, progress):
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


def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C stops the training, whose last lines are still to be read
    progress, terminal = {}, sys.stdout.isatty()
    with open(sys.argv[1], "w", encoding="utf-8") as log:
        for line in sys.stdin:
            log.write(line)
            log.flush()
            shown = summary(line, progress)
            if shown and ("valid" in shown or terminal):
                end = "\n" if "valid" in shown else "\r"
                sys.stdout.write(f"{shown:<78}{end}" if terminal else f"{shown}{end}")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
