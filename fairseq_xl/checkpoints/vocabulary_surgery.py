"""Vocabulary surgery: changes the dictionary of a checkpoint.

Each row of a new table is the mean of rows of the old one, or random; a row that stays is the mean of itself and
bit-identical. The weights, their averages (EMA) and their FP32 master weights get the same rows. In the optimizer's
state rows that stay keep their moments and new rows have none, so that training goes on.

Shapes: `V` symbols of the dictionary, `L` languages, `C` channels.

`initial_rows` chooses the old rows for each row of a new dictionary:

- A symbol of both dictionaries keeps its row.
- A new piece gets the mean over the old pieces of its text, without those of unknown characters. Its logit is then the
  mean of theirs, with any hidden state: it begins no more probable than the most probable of them.
- A new piece without a known character gets random embeddings, as in a new model, and the mean output bias of all old
  pieces. If they all began with the mean embedding they would be equal, and learn more slowly.
- A new language gets the row of a language that is named, or the mean over all old languages.
"""

import fnmatch
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_xl.checkpoints.identity import open_checkpoint
from fairseq_xl.checkpoints.language_modules import in_module
from fairseq_xl.checkpoints.parameter_names import MASTERS, OF_LANGUAGES, OF_SYMBOLS
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.data.vocabulary.special_symbols import WORD_START
from fairseq_xl.errors import UserError

logger = logging.getLogger(__name__)

Change = Callable[[str, Tensor], Tensor]

SEED = 1  # of random rows
STD = 0.02  # standard deviation of random rows in a model without --init-std
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Rows:
    """Old rows whose mean is each new row.

    Attributes:
        symbols: for each symbol of the new dictionary.
        languages: for each language of the new dictionary.
        random: new symbols whose embeddings are random; their output bias is the mean.
        std: standard deviation of random embeddings.
    """

    symbols: Sequence[Sequence[int]]
    languages: Sequence[Sequence[int]]
    random: Sequence[int] = ()
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
        if self.random and rows is self.symbols and value.dim() == 2:
            generator = torch.Generator().manual_seed(SEED)  # the same numbers in all copies
            noise = torch.randn(len(self.random), value.size(1), generator=generator)
            new[list(self.random)] = (self.std * noise).to(value.dtype)
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


class OtherParameters(Exception):
    """An optimizer's state is of other parameters than expected."""


def trained_names(model: dict[str, Tensor], cfg: dict[str, Any]) -> list[str]:
    """Names of the parameters that a run trains, in the order of its optimizer.

    Args:
        model: state dict of the model, which has its parameters in their order.
        cfg: configuration of the run, with --train-only of pre-training and --freeze of fine-tuning.
    """
    task, positions = cfg["task"], bool((cfg.get("model") or {}).get("language_positions"))

    def matches(name: str, patterns: str) -> bool:
        return any(
            in_module(name, positions) if pattern == "language-module" else fnmatch.fnmatch(name, pattern)
            for pattern in patterns.split(",")
        )

    only, frozen = task.get("train_only"), task.get("freeze")
    return [name for name in model if not (only and not matches(name, only)) and not (frozen and matches(name, frozen))]


def change_optimizer(
    state: dict[str, Any], parameters: dict[str, Tensor], change_weights: Change, change_moments: Change
) -> dict[str, Any]:
    """Returns an optimizer's state, a checkpoint's `last_optimizer_state`, with other rows.

    Args:
        parameters: {name: parameter} of the trained parameters in order, before the change.
        change_weights, change_moments: functions of a parameter's name and a tensor that give float32 parameters, and
            moments, their new rows.

    Raises `OtherParameters` if numbers of parameters or shapes differ.
    """
    indices = [index for group in state["param_groups"] for index in group["params"]]
    if len(indices) != len(parameters):
        raise OtherParameters(f"it has {len(indices)} parameters, the run trains {len(parameters)}")
    changed = dict(state)
    names = dict(zip(indices, parameters))
    changed["state"] = {
        index: _change_moments(moments, names[index], parameters[names[index]], change_moments)
        for index, moments in state["state"].items()
    }
    masters = state.get(MASTERS)  # FP32 master weights, of a run with 16 bits
    if masters is not None:
        if [tensor.shape for tensor in masters] != [tensor.shape for tensor in parameters.values()]:
            raise OtherParameters("its FP32 master weights have other shapes than the model's")
        changed[MASTERS] = [change_weights(name, master) for name, master in zip(parameters, masters)]
    return changed


def _change_moments(moments: dict[str, Any], name: str, parameter: Tensor, change: Change) -> dict[str, Any]:
    """The state of one parameter: moments of its shape, for rows (V,) and columns (C,) in Adafactor, and numbers."""
    changed = dict(moments)
    for key, value in moments.items():
        if not torch.is_tensor(value) or not value.dim():
            continue
        by_column = key.endswith("_col") and value.shape == parameter.shape[:-2] + parameter.shape[-1:]
        if value.shape != parameter.shape and value.shape != parameter.shape[:-1] and not by_column:
            raise OtherParameters(f"{key} of {name} has shape {tuple(value.shape)}, expected {tuple(parameter.shape)}")
        if not by_column:
            changed[key] = change(name, value)
    return changed


def initial_rows(
    old: XLDictionary, new: XLDictionary, segment: Callable[[str], list[str]], like: str | None = None
) -> Rows:
    """Returns the old rows of each symbol and language of a new dictionary, and logs their numbers.

    Args:
        segment: function that returns the old pieces of a new piece, without unknown ones.
        like: old language whose rows new languages get; None: the mean over all.

    Raises `UserError` for a language `like` that the old dictionary lacks.
    """
    old_rows = {symbol: row for row, symbol in enumerate(old.symbols)}
    pieces = old.pieces.tolist()
    initial = [old.language_id(like)] if like else list(range(old.num_languages))
    languages = [[old.languages.index(code)] if code in old.languages else initial for code in new.languages]
    symbols, added, random_rows = [], 0, []
    for new_row, symbol in enumerate(new.symbols):
        if new_row >= new.first_language:
            language_rows = languages[new_row - new.first_language]
            symbols.append([old.first_language + row for row in language_rows] or pieces)
        elif symbol in old_rows and (old.is_piece[old_rows[symbol]] == new.is_piece[new_row]):
            symbols.append([old_rows[symbol]])
        else:
            rows = [old_rows[piece] for piece in segment(symbol) if piece != WORD_START and piece in old_rows]
            rows = [row for row in rows if old.is_piece[row]]
            added += 1
            random_rows += [] if rows else [new_row]
            symbols.append(rows or pieces)
    left_out = len(set(old.symbols) - set(new.symbols))
    codes = [code for code in new.languages if code not in old.languages]
    logger.info(
        "new pieces: %d (%d with random embeddings); new languages: %s; removed symbols: %d",
        *(added, len(random_rows), ", ".join(codes) or "none", left_out),
    )
    if not added and not codes and old.symbols == new.symbols:
        raise UserError("the new dictionary has the symbols of the old one: there is nothing to add")
    return Rows(symbols, languages, random_rows)
