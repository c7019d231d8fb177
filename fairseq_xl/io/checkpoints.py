"""Reading and writing checkpoints: plain data and tensors only; nothing in a file is run."""

import argparse
import collections
import functools
import io
import os
import re
import typing
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy
import omegaconf
import torch

from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io import bounds
from fairseq_xl.io.files import SURROGATE, is_whole_file, replacing
from fairseq_xl.io.pickles import check_pickle

#: names such as xlm-roberta-base and FacebookAI/xlm-roberta-base
HUB_NAME = re.compile(r"([\w.-]+/)?\w[\w.-]*")
NO_CHECKPOINT = "is not a checkpoint, or it is damaged or cut short"
NOT_FINITE = "has NaN or infinite values"
DICTIONARY = "dict.txt"
#: names of the checkpoint in a folder, in order of preference
CHECKPOINTS = ("checkpoint.pt", "checkpoint_best.pt", "checkpoint_last.pt")
#: types of the tensors in checkpoints: weights, and counters and indices
DTYPES = {torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.uint8, torch.int8, torch.int16}
DTYPES |= {torch.int32, torch.int64, torch.bool}
ZIP = b"PK\x03\x04"  # the first bytes of a file of torch.save since torch 1.6


def load_plain(path: "str | os.PathLike | BinaryIO", mapped: bool = False) -> Any:
    """Reads a file of plain data and tensors written by torch.save; the tensors are on the CPU.

    Args:
        path: a file name, or a file open for reading in binary mode.
        mapped: whether tensors stay in the file until they are used, for a file name. Checksums are then not compared:
            for shapes and types, not for weights.

    Raises:
        UserError: the file is missing, damaged or of another kind, or it holds anything else, which is not run: torch
            reads with `weights_only` and the list of `plain_types`.
    """
    if not isinstance(path, (str, os.PathLike)):
        return _load_stream(path, str(getattr(path, "name", "the checkpoint")))
    try:
        with open(path, "rb") as stream:
            return _load_stream(stream, os.fspath(path), mapped)
    except OSError as error:
        refuse_hub_name(path)
        raise UserError(f"{os.fspath(path)} cannot be read as a checkpoint: {error.strerror or error}") from error


def save_checkpoint(state: Any, path: "str | os.PathLike") -> None:
    """Writes plain data and tensors with torch.save, atomically: see `replacing`."""
    with replacing(path) as stream:
        torch.save(state, stream)


def check_checkpoint(state: Any, name: object) -> dict:
    """Returns the content of the file `name`; raises `UserError` unless it is a fairseq checkpoint's, of dicts."""
    if isinstance(state, dict) and isinstance(state.get("kind"), str):
        raise UserError(f"{name} is not the checkpoint of a model but a {state['kind']}")
    parameters = state.get("model") if isinstance(state, dict) else None
    if not isinstance(parameters, dict) or not all(isinstance(parameter, str) for parameter in parameters):
        raise UserError(f"{name} is not a fairseq checkpoint: it holds no model parameters under the key 'model'")
    if "optimizer_history" not in state:
        raise UserError(f"{name} is not a fairseq checkpoint: it holds no 'optimizer_history'")
    history, extra = state["optimizer_history"] or [], state.get("extra_state")
    parts = {"task_state": state.get("task_state"), "extra_state": extra}
    if isinstance(extra, dict):
        parts["extra_state.train_iterator"] = extra.get("train_iterator")
    for key, value in parts.items():
        if value is not None and not isinstance(value, dict):
            raise UserError(f"{name} is not a fairseq checkpoint: its {key!r} is {quoted(value)}, expected a dict")
    if not isinstance(history, list) or not all(isinstance(entry, dict) for entry in history):
        value = quoted(history)
        raise UserError(f"{name} is not a fairseq checkpoint: its 'optimizer_history' is {value}, expected dicts")
    return state


def is_finite(tensor: torch.Tensor) -> bool:
    """Whether all values of a tensor are finite; checks the minimum and maximum, which is faster than `isfinite`."""
    return not tensor.numel() or bool(torch.stack(tensor.aminmax()).isfinite().all())


@functools.cache
def plain_types() -> list[Any]:
    """The classes and functions of plain data that a file may name in addition to those that torch allows."""
    allowed: list[Any] = [argparse.Namespace, collections.defaultdict, dict, list, int, (typing.Any, "typing.Any")]
    allowed += [omegaconf.DictConfig, omegaconf.ListConfig, omegaconf.nodes.AnyNode]
    allowed += [omegaconf.base.ContainerMetadata, omegaconf.base.Metadata]
    allowed += [numpy.ndarray, numpy.dtype]
    allowed += [kind for name, kind in vars(numpy.dtypes).items() if name.endswith("DType")]
    # a file of numpy 1 names numpy.core, one of numpy 2 numpy._core, and either is read under the other
    for name, function in (
        ("_reconstruct", numpy.zeros(1).__reduce__()[0]),
        ("scalar", numpy.float64().__reduce__()[0]),
    ):
        allowed += [(function, f"numpy.{core}.multiarray.{name}") for core in ("core", "_core")]
    return allowed


def refuse_hub_name(path: "str | os.PathLike") -> None:
    """Raises `UserError` if a path does not exist and looks like the name of a published model on a hub."""
    name = os.fspath(path)
    if HUB_NAME.fullmatch(name) and not name.endswith((".pt", ".pth")) and not os.path.exists(os.path.dirname(name)):
        raise UserError(
            f"{name}: there is no such file or folder, and nothing is downloaded: `fairseq-xl convert FOLDER OUT` "
            "makes a checkpoint of a published model's files"
        )


def _load_stream(stream: BinaryIO, name: str, mapped: bool = False) -> Any:
    begins = stream.read(len(ZIP))
    stream.seek(0)
    if not begins:
        raise UserError(f"{name} {NO_CHECKPOINT} (it is empty)")
    mapped = mapped and begins == ZIP  # earlier formats cannot be mapped
    try:
        for pickle in _parts(stream, name, sums=not mapped) if begins == ZIP else [stream] * 5:  # one after another
            check_pickle(pickle)
        stream.seek(0)
        with torch.serialization.safe_globals(plain_types()):
            content = torch.load(name if mapped else stream, map_location="cpu", weights_only=True, mmap=mapped)
    except (MemoryError, UserError):
        raise
    except OverflowError as error:
        raise UserError(f"{name} was refused: it has {error} (nothing in the file was run)") from error
    except Exception as error:  # a damaged file ends in nearly any exception, IndexError and KeyError included
        refused = re.search(r"GLOBAL (\S+)|function (\S+)|unsupported class (\S+)", str(error))
        if refused:
            what = next(filter(None, refused.groups()))
            raise UserError(
                f"{name} was refused: it holds {what}, and a checkpoint may hold only tensors and plain data "
                "(nothing in the file was run)"
            ) from error
        first = str(error).split("\n")[0].split(". ")[0]
        reason = f"{type(error).__name__}: {first}"
        advice = ("Weights only load failed", "Cannot use ``weights_only")  # torch then says how to turn it off
        if isinstance(error, (LookupError, EOFError)) or str(error).startswith(advice):
            reason = "not a file of plain data written by torch.save"
        raise UserError(f"{name} {NO_CHECKPOINT} ({reason})") from error
    if begins != ZIP and stream.read(1):  # torch stops behind the last tensor
        raise UserError(f"{name} {NO_CHECKPOINT} (other bytes stand after its content)")
    _check_content(content, name)
    return content


def _check_content(content: Any, name: str) -> None:
    """Raises `UserError` for content that torch reads, but no program writes.

    Tensors must be dense, with a value in the file for each element: sparse or expanded ones may be far larger than the
    file. Text must be Unicode, and data has at most `bounds.DEEPEST` levels, and `bounds.MOST_INSTRUCTIONS` values,
    each counted where it occurs: other code follows every reference.
    """
    stack: list[tuple[Any, str, int]] = [(content, "", 0)]
    values = 0
    while stack:
        value, key, depth = stack.pop()
        values += 1
        problem = None
        if isinstance(value, torch.Tensor):
            if value.layout is not torch.strided or value.is_quantized or value.is_meta:
                problem = "a sparse or quantized tensor, or one without values, expected a plain one"
            elif value.dtype not in DTYPES:
                problem = f"a tensor of {value.dtype}, expected one of floating-point numbers of 16 bits or more"
            elif value.numel() * value.element_size() > value.untyped_storage().nbytes():
                problem = f"a tensor of shape {tuple(value.shape)}, of which the file has only a part"
        elif isinstance(value, str):
            if not value.isascii() and SURROGATE.search(value):
                problem = "text that is not Unicode"
        elif isinstance(value, (dict, list, tuple, argparse.Namespace)):
            if depth > bounds.DEEPEST:
                problem = f"data that is nested more than {bounds.DEEPEST} times"
            elif values > bounds.MOST_INSTRUCTIONS:
                problem = f"a part of more than {bounds.MOST_INSTRUCTIONS:,} values"
            elif isinstance(value, (list, tuple)):
                stack += [(item, key, depth + 1) for item in value]
            else:
                items = value.items() if isinstance(value, dict) else vars(value).items()
                stack += [(name, key, depth + 1) for name, _ in items if not isinstance(name, (int, float))]
                stack += [(item, f"{key}.{name}" if key else f"{name}", depth + 1) for name, item in items]
        if problem:
            raise UserError(f"{name} was refused: {quoted(key)} is {problem} (nothing in the file was run)")


def _parts(stream: BinaryIO, name: str, sums: bool) -> list[io.BytesIO]:
    """The pickles in a zip file, whose sizes are those of the file, and checksums too if asked; torch compares neither.

    Without the checksums, zeros in the middle of the file would become weights. torch.save compresses nothing, but
    torch decompresses parts of any size.
    """
    try:
        with zipfile.ZipFile(stream) as parts:
            pickles = [part for part in parts.infolist() if part.filename.lower().endswith(".pkl")]
            structure = sum(part.file_size for part in pickles)
            size, stored = sum(part.file_size for part in parts.infolist()), parts.start_dir
            whole = is_whole_file(parts)
            damaged = parts.testzip() if sums and size <= stored else None
            if whole and not damaged and size <= stored and structure <= bounds.LARGEST_STRUCTURE:
                return [io.BytesIO(parts.read(part)) for part in pickles]
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise UserError(f"{name} {NO_CHECKPOINT} (it has no table of contents)") from error
    if not whole:
        raise UserError(f"{name} {NO_CHECKPOINT} (other bytes stand before or after its content)")
    if size > stored:
        raise UserError(f"{name} {NO_CHECKPOINT} (its {stored:,} bytes declare {size:,} bytes)")
    if damaged:
        raise UserError(f"{name} {NO_CHECKPOINT} (its part {damaged} has another checksum)")
    most = bounds.LARGEST_STRUCTURE
    raise UserError(
        f"{name} was refused: it has {structure:,} bytes beside its tensors' values, at most {most:,} are read"
    )


def found_in(path: str | os.PathLike) -> tuple[Path, Path | None]:
    """The checkpoint that a path names, and its data folder if it is known without the checkpoint.

    A folder has the checkpoint, one of `CHECKPOINTS`. Its folder is its data folder if it has dict.txt. Raises
    `UserError` for a folder without a checkpoint.
    """
    checkpoint = Path(path)
    if not checkpoint.exists():
        refuse_hub_name(path)
    if checkpoint.is_dir():
        candidates = (checkpoint / name for name in CHECKPOINTS if (checkpoint / name).is_file())
        checkpoint = next(candidates, checkpoint)
        if checkpoint.is_dir():
            raise UserError(
                f"{checkpoint}: expected a folder with {' or '.join(CHECKPOINTS)}, found none of them (`fairseq-xl "
                "convert` makes one of a published model)"
            )
    return checkpoint, checkpoint.parent if (checkpoint.parent / DICTIONARY).is_file() else None
