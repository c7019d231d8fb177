"""Vocabulary surgery: changes the dictionary of a checkpoint.

Each row of a new table is the mean of rows of the old one, or random. The weights, their averages (EMA) and their FP32
master weights get the same rows. In the optimizer's state rows that stay keep their moments and new rows have none.

Shapes: `V` symbols of the dictionary, `L` languages, `C` channels.

`initial_rows` chooses the old rows for each row of a new dictionary (recipes/interchange/README.md). The logit of a new
piece is then the mean of those of the pieces of its text, with any hidden state. Pieces without a known character get
random embeddings: if they all began with the mean they would be equal, and learn more slowly.

`cut_subwords` removes pieces that a text lacks from the files of sub-words. A word list of XLM or WordPiece loses its
unused words. Segmentations stay: XLM's codes merge the same pieces, and WordPiece takes the longest match.
"""

import fnmatch
import logging
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairseq_xl.checkpoints.identity import Checkpoint, found_in, open_checkpoint
from fairseq_xl.checkpoints.language_modules import in_module
from fairseq_xl.checkpoints.parameter_names import MASTERS, OF_LANGUAGES, OF_SYMBOLS
from fairseq_xl.checkpoints.sentencepiece_surgery import ordinary_pieces, read_model, remove_pieces
from fairseq_xl.data.store.binarized_text import open_text
from fairseq_xl.data.vocabulary import wordpiece
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.data.vocabulary.special_symbols import WORD_START
from fairseq_xl.data.vocabulary.subwords import FILES, open_subwords, vocabulary_kind
from fairseq_xl.errors import UserError
from fairseq_xl.io.files import replacing, write_lines

logger = logging.getLogger(__name__)

SEED = 1  # of random rows
STD = 0.02  # standard deviation of random rows in a model without --init-std


@dataclass(frozen=True)
class Rows:
    """Old rows whose mean is each new row, for each symbol and each language of the new dictionary."""

    symbols: Sequence[Sequence[int]]
    languages: Sequence[Sequence[int]]
    random: Sequence[int] = ()  # new symbols whose embeddings are random; their output bias is the mean
    std: float = STD  # of random embeddings

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
        """A moment of the parameter `name`: 0 in rows that are no copies."""
        rows = self.of(name)
        if rows is None:
            return value
        new = mean_rows(value, rows)
        new[[row for row, old in enumerate(rows) if len(old) > 1]] = 0
        return new


def read_checkpoint(path: str, dictionary: XLDictionary, dictionary_file: Path) -> Checkpoint:
    """Reads a checkpoint, or that of a folder; `UserError` unless it has the dictionary and can be trained on."""
    checkpoint = open_checkpoint(str(found_in(path)[0]), dictionary, dictionary_file)
    if not checkpoint.task:
        raise UserError(f"{checkpoint.path} is not a fairseq checkpoint: it holds no configuration of its task")
    return checkpoint


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
    checkpoint: Checkpoint, old: XLDictionary, new: XLDictionary, rows: Rows, data: str, encoding: dict[str, Any]
) -> dict[str, Any]:
    """The content of a checkpoint with the dictionary and `encoding` of the folder `data`, and rows of its old one.

    Raises `UserError` if a table has not as many rows as `old` has symbols or languages.
    """
    content, path = checkpoint.content, checkpoint.path
    model, cfg = content["model"], content["cfg"]
    _check_tables(model, path, old)
    rows = replace(rows, std=(cfg.get("model") or {}).get("init_std", STD))
    extra, optimizer = dict(content.get("extra_state") or {}), content.get("last_optimizer_state")
    for name in ("ema", "ema_fp32_params"):
        if isinstance(extra.get(name), dict):
            extra[name] = {key: rows.weights(key, value) for key, value in extra[name].items()}
    if optimizer is not None:
        try:
            trained = {name: model[name] for name in trained_names(model, cfg)}
            optimizer = change_optimizer(optimizer, trained, rows)
        except OtherParameters as error:
            logger.warning("%s: the optimizer's state is left out: %s", path, error)
            optimizer = None
    identity = content["task_state"]["fairseq_xl"]
    identity = identity | {"dictionary": new.digest(), "languages": list(new.languages), "encoding": encoding}
    return content | {
        "model": {name: rows.weights(name, value) for name, value in model.items()},
        "extra_state": extra,
        "last_optimizer_state": optimizer,
        "cfg": cfg | {"task": cfg["task"] | {"data": data}},
        "task_state": content["task_state"] | {"fairseq_xl": identity, "inputs": {}},  # it has new text
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
    """Names of the parameters that a run trains, by --train-only and --freeze of `cfg`, in the order of the model."""
    task, positions = cfg["task"], bool((cfg.get("model") or {}).get("language_positions"))

    def matches(name: str, patterns: str) -> bool:
        return any(
            in_module(name, positions) if pattern == "language-module" else fnmatch.fnmatch(name, pattern)
            for pattern in patterns.split(",")
        )

    only, frozen = task.get("train_only"), task.get("freeze")
    return [name for name in model if not (only and not matches(name, only)) and not (frozen and matches(name, frozen))]


def change_optimizer(state: dict[str, Any], parameters: dict[str, Tensor], rows: Rows) -> dict[str, Any]:
    """A checkpoint's `last_optimizer_state` with other rows of the trained `parameters`, which are in order.

    Raises `OtherParameters` if numbers of parameters or shapes differ.
    """
    indices = [index for group in state["param_groups"] for index in group["params"]]
    if len(indices) != len(parameters):
        raise OtherParameters(f"it has {len(indices)} parameters, the run trains {len(parameters)}")
    changed, names = state | {"state": {}}, dict(zip(indices, parameters))
    for index, moments in state["state"].items():
        name, shape = names[index], parameters[names[index]].shape
        tensors = {key: value for key, value in moments.items() if torch.is_tensor(value) and value.dim()}
        for key, value in tensors.items():
            if value.shape != shape:
                raise OtherParameters(f"{key} of {name} has shape {tuple(value.shape)}, expected {tuple(shape)}")
        changed["state"][index] = moments | {key: rows.moments(name, value) for key, value in tensors.items()}
    masters = state.get(MASTERS)  # FP32 master weights, of a run with 16 bits
    if masters is not None:
        if [tensor.shape for tensor in masters] != [tensor.shape for tensor in parameters.values()]:
            raise OtherParameters("its FP32 master weights have other shapes than the model's")
        changed[MASTERS] = [rows.weights(name, master) for name, master in zip(parameters, masters)]
    return changed


def initial_rows(
    old: XLDictionary, new: XLDictionary, segment: Callable[[str], list[str]], like: str | None = None
) -> Rows:
    """The old rows of each symbol and language of a new dictionary; logs their numbers.

    `segment` returns the known old pieces of a new one. New languages get the rows of `like`, by default the mean over
    all languages; raises `UserError` if the old dictionary lacks it.
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


# --- files of sub-words -------------------------------------------------------------------------------------------


def texts_of(folder: Path) -> list[Path]:
    """Prefixes of a data folder's binarized texts without back-translated ones; `UserError` if there are none."""
    prefixes = sorted({path.with_suffix("") for end in ("idx", "bin") for path in folder.glob(f"[!.]*/*.{end}")})
    back_translated = [prefix for prefix in prefixes if prefix.name.startswith("back-")]
    for prefix in back_translated:
        logger.warning("%s is left out: `fairseq-xl back-translate` writes such pairs again", prefix)
    texts = [prefix for prefix in prefixes if prefix not in back_translated]
    if not texts:
        raise UserError(f"{folder} has no binarized text, which `fairseq-xl data prepare` writes")
    return texts


def used_symbols(texts: list[Path], dictionary: XLDictionary) -> np.ndarray:
    """The symbols that occur in binarized texts: (V,) bool. Raises `UserError` as `open_text` does."""
    used = np.zeros(len(dictionary), dtype=bool)
    for prefix in texts:
        pair = "-" in prefix.parent.name
        language = prefix.name.rpartition(".")[2] if pair else prefix.parent.name
        used |= open_text(prefix, language, len(dictionary)).counts() > 0
    return used


def cut_subwords(data: Path, folder: Path, dictionary: XLDictionary, used: np.ndarray) -> np.ndarray:
    """Writes the sub-words of a data folder without those that are not `used`, (V,) bool; returns the remaining ones.

    Raises `UserError` as `open_subwords` does, and for a model that lacks a piece of the text.
    """
    kind, subwords = vocabulary_kind(data), open_subwords(data)
    pieces = {dictionary.symbols[index] for index in np.flatnonzero(used & dictionary.is_piece)}
    *copied, listed = FILES[kind]
    if lacking := pieces - set(subwords.symbols):
        raise UserError(f"{data} has the piece {min(lacking)!r}, which {listed} lacks: its text has other sub-words")
    for name in copied:
        shutil.copyfile(data / name, folder / name)
    if kind != "sentencepiece":
        special = wordpiece.SPECIAL if kind == "wordpiece" else ()
        names = wordpiece.read_vocabulary(data / listed) if kind == "wordpiece" else subwords.symbols[1:]
        remaining = [name for name in names if name in pieces or name in special]
        counts = [f" {dictionary.count[dictionary.index(name)]}" if kind == "xlm" else "" for name in remaining]
        write_lines(folder / listed, map(str.__add__, remaining, counts))
        return used
    old_pieces = {dictionary.symbols[index] for index in dictionary.pieces}
    model = remove_pieces(read_model(data / listed), pieces, old_pieces)
    with replacing(folder / listed) as file:
        file.write(model.SerializeToString())
    kept_symbols = np.zeros(len(dictionary), dtype=bool)
    kept_symbols[[dictionary.index(piece) for piece in ordinary_pieces(model) if piece in old_pieces]] = True
    return kept_symbols
