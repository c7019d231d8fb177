"""Reads updates, tokens, minutes and validation losses of a training from its train.log."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def training_of(log: Path) -> dict[str, Any]:
    """Reads the train.log of a training; returns totals and the last validation, {} if no epoch has ended.

    Returns:
        updates: number of updates.
        tokens: tokens of the training, without padding.
        clipped: % of the updates with clipped gradients.
        minutes: wall time, summed over restarts; killed processes are not counted.
        losses: losses of the last validation, in bits per predicted token: `loss` of the criterion, which may sum
            several terms; `mlm`, `mlm_de`, … of objectives; `best`, the lowest `loss`, if it selects checkpoints.
    """
    text = log.read_text(encoding="utf-8")
    epochs = {entry["epoch"]: entry for entry in json_entries(text, "train_wpb")}  # the later of an interrupted epoch
    if not epochs:
        return {}
    before, tokens, clipped = 0, 0.0, 0.0
    for entry in epochs.values():
        updates = int(entry["train_num_updates"])
        tokens += (updates - before) * float(entry["train_wpb"])
        clipped += (updates - before) * float(entry.get("train_clip", 0))
        before = updates
    seconds = map(float, re.findall(r"done training in ([\d.]+) seconds", text))
    *_, validation = {}, *json_entries(text, "valid_loss")
    return {
        "updates": before,
        "tokens": tokens,
        "clipped": round(clipped / before, 2),
        "minutes": round(sum(seconds) / 60, 2),
        "losses": losses_of(validation),
    }


def json_entries(text: str, key: str) -> Iterator[dict[str, Any]]:
    """Yields the JSON entries of a log that have a key."""
    for line in text.splitlines():
        if f'"{key}": ' in line:
            yield json.loads(line[line.index("{") :])


def losses_of(entry: dict[str, Any]) -> dict[str, float]:
    """Returns the losses of a validation by name: `loss` of `valid_loss`, and `mlm_de` of `valid_mlm_de_loss`."""
    losses = ((re.fullmatch("valid_(?:(.+)_)?loss", name), value) for name, value in entry.items())
    return {name[1] or "loss": float(value) for name, value in losses if name}
