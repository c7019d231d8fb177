"""Keeps a training log and shows how far it is: ``fairseq-train … 2>&1 | python recipes/progress.py LOG``."""

import json
import re
import signal
import sys
from datetime import timedelta

ENTRY = re.compile(r"\{\"epoch\": .*\}$")


def summary(line):
    """One line for people from a JSON entry of fairseq's log, or None for any other line."""
    found = ENTRY.search(line)
    if not found:
        return None
    try:
        entry = json.loads(found[0])
    except json.JSONDecodeError:  # a line that was cut short
        return None
    kind = next((kind for kind in ("train_", "valid_") if f"{kind}loss" in entry), "")
    if kind == "train_":
        return None
    of = f" of {entry['max_update']}" if "max_update" in entry else ""
    parts = [f"update {entry.get(f'{kind}num_updates', '?')}{of}"]
    parts += [f"{float(entry['wps']):,.0f} tokens/s"] if "wps" in entry and not kind else []
    parts += [f"{timedelta(seconds=int(entry['seconds_left']))} left"] if "seconds_left" in entry else []
    parts += [f"{kind.rstrip('_') or 'train'} loss {entry[f'{kind}loss']}"]
    parts += [f"ppl {entry[f'{kind}ppl']}"] if f"{kind}ppl" in entry else []
    return "  " + ", ".join(parts)


def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the training, which still has something to say
    with open(sys.argv[1], "w", encoding="utf-8") as log:
        for line in sys.stdin:
            log.write(line)
            log.flush()
            shown = summary(line)
            if shown and ("valid" in shown or sys.stdout.isatty()):
                end = "\n" if "valid" in shown else "\r"
                sys.stdout.write(f"{shown:<78}{end}")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
