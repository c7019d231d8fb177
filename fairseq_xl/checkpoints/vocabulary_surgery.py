"""Vocabulary surgery: changes the dictionary of a checkpoint.

Each row of a new table is the mean of rows of the old one, or random; a row that stays is the mean of itself and
bit-identical. The weights, their averages (EMA) and their FP32 master weights get the same rows. In the optimizer's
state rows that stay keep their moments and new rows have none, so that training goes on.

Shapes: `V` symbols of the dictionary, `L` languages, `C` channels.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_xl.checkpoints.identity import open_checkpoint
from fairseq_xl.checkpoints.optimizer_rows import OtherParameters, change_optimizer, trained_names
from fairseq_xl.checkpoints.parameter_names import OF_LANGUAGES, OF_SYMBOLS
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError

logger = logging.getLogger(__name__)


SEED = 1  # of random rows
STD = 0.02  # standard deviation of random rows in a model without --init-std


@dataclass(frozen=True)
class Rows:
    """Old rows whose mean is each new row.

    Attributes:
        symbols: for each symbol of the new dictionary.
        languages: for each language of the new dictionary.
        drawn: new symbols whose embeddings are random; their output bias is the mean.
        std: standard deviation of random embeddings.
    """

    symbols: Sequence[Sequence[int]]
    languages: Sequence[Sequence[int]]
    drawn: Sequence[int] = ()
    std: float = STD

    def of(self, name: str) -> Sequence[Sequence[int]] | None:
        """The old rows of the parameter `name`; None for one that has neither symbols nor languages."""
        if OF_SYMBOLS.fullmatch(name):
            return self.symbols
        return self.languages if OF_LANGUAGES.fullmatch(name) else None

    def weights(self, name: str, value: Tensor) -> Tensor:
        """The parameter `name`, or a copy of it in another precision, with the new rows."""
        rows = self.of(name)
        if rows is None:
            return value
        new = mean_rows(value, rows)
        if self.drawn and rows is self.symbols and value.dim() == 2:
            generator = torch.Generator().manual_seed(SEED)  # the same numbers in all copies
            noise = torch.randn(len(self.drawn), value.size(1), generator=generator)
            new[list(self.drawn)] = (self.std * noise).to(value.dtype)
        return new

    def moments(self, name: str, value: Tensor) -> Tensor:
        """A moment with the shape, or the first dimension, of the parameter `name`: 0 in rows that are no copies."""
        rows = self.of(name)
        if rows is None:
            return value
        new = mean_rows(value, rows)
        new[[row for row, old in enumerate(rows) if len(old) > 1]] = 0
        return new


def read_checkpoint(path: str, dictionary: XLDictionary, dictionary_file: Path) -> dict[str, Any]:
    """Reads a checkpoint of this package; raises `UserError` unless it has the dictionary and can be trained on."""
    checkpoint = open_checkpoint(path, dictionary, dictionary_file)
    if not checkpoint.task:
        raise UserError(f"{path} is not a fairseq checkpoint: it holds no configuration of its task")
    return checkpoint.content


def mean_rows(table: Tensor, rows: Sequence[Sequence[int]]) -> Tensor:
    """Means of the rows of a table (V, ...) for each new row, (len(rows), ...), computed in float32 or float64.

    Several new rows may share one sequence of old rows, whose mean is then computed once.
    """
    new = table[torch.tensor([old[0] for old in rows], dtype=torch.long)]
    means: dict[int, Tensor] = {}
    for row, old in enumerate(rows):
        if len(old) > 1:
            if id(old) not in means:
                precise = torch.promote_types(table.dtype, torch.float32)
                means[id(old)] = table[torch.tensor(old)].to(precise).mean(0).to(table.dtype)
            new[row] = means[id(old)]
    return new


def change_vocabulary(
    checkpoint: dict[str, Any],
    path: str,
    old: XLDictionary,
    new: XLDictionary,
    rows: Rows,
    data: str,
    encoding: dict[str, Any],
) -> dict[str, Any]:
    """Returns a checkpoint with another dictionary.

    Args:
        checkpoint: a checkpoint of this package, whose identity was checked; it stays as it is.
        rows: old rows of each new one.
        data: folder with the new dictionary, which the checkpoint names as its data folder.
        encoding: `encoding_of` that folder.

    Raises `UserError` if a table has not as many rows as `old` has symbols or languages.
    """
    model, cfg = checkpoint["model"], checkpoint["cfg"]
    _check_tables(model, path, old)
    rows = replace(rows, std=(cfg.get("model") or {}).get("init_std", STD))
    extra, optimizer = dict(checkpoint.get("extra_state") or {}), checkpoint.get("last_optimizer_state")
    for name in ("ema", "ema_fp32_params"):
        if isinstance(extra.get(name), dict):
            extra[name] = {key: rows.weights(key, value) for key, value in extra[name].items()}
    if optimizer is not None:
        try:
            trained = {name: model[name] for name in trained_names(model, cfg)}
            optimizer = change_optimizer(optimizer, trained, rows.weights, rows.moments)
        except OtherParameters as error:
            logger.warning("%s: the optimizer's state is left out: %s", path, error)
            optimizer = None
    identity = checkpoint["task_state"]["fairseq_xl"]
    identity = identity | {"dictionary": new.digest(), "languages": list(new.languages), "encoding": encoding}
    return checkpoint | {
        "model": {name: rows.weights(name, value) for name, value in model.items()},
        "extra_state": extra,
        "last_optimizer_state": optimizer,
        "cfg": cfg | {"task": cfg["task"] | {"data": data}},
        "task_state": checkpoint["task_state"] | {"fairseq_xl": identity, "inputs": {}},  # it has new text
    }


def _check_tables(model: dict[str, Tensor], path: str, old: XLDictionary) -> None:
    tables = [name for name in model if OF_SYMBOLS.fullmatch(name)]
    if not tables:
        raise UserError(f"{path} has no token embeddings")
    for name, value in model.items():
        kind = "symbols" if name in tables else "languages" if OF_LANGUAGES.fullmatch(name) else None
        expected = {"symbols": len(old), "languages": len(old.languages)}.get(kind or "")
        if expected is not None and len(value) != expected:
            raise UserError(f"{path} is damaged: {name} has {len(value)} rows, its dictionary {expected} {kind}")
