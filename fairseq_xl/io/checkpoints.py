"""Reading and writing checkpoints: plain data and tensors only; nothing in a file is run."""

import argparse
import collections
import contextlib
import functools
import os
import re
import typing
import zipfile
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy
import omegaconf
import torch

from fairseq_xl.errors import UserError
from fairseq_xl.io.files import replacing

NO_CHECKPOINT = "is not a checkpoint, or it is damaged or cut short"
NOT_FINITE = "has NaN or infinite values"
ZIP = b"PK\x03\x04"  # the first bytes of a file of torch.save since torch 1.6


def load_plain(path: "str | os.PathLike | BinaryIO") -> Any:
    """Reads a file of plain data and tensors written by torch.save; the tensors are on the CPU.

    Args:
        path: a file name, or a file open for reading in binary mode.

    Raises:
        UserError: the file is missing, damaged or of another kind, or it holds anything else, which is not run: torch
            reads with `weights_only` and the list of `allow_plain_types`.
    """
    if isinstance(path, (str, os.PathLike)):
        with readable(path), open(path, "rb") as stream:
            return _load_stream(stream, os.fspath(path))
    return _load_stream(path, str(getattr(path, "name", "the checkpoint")))


def load_checkpoint(path: "str | os.PathLike | BinaryIO") -> dict:
    """Reads a fairseq checkpoint as it is in the file: not upgraded, no options overridden.

    Args:
        path: a file name, or a file open for reading in binary mode.

    Returns: the checkpoint; its "model" maps parameter names to tensors on the CPU.

    Raises:
        UserError: as `load_plain`, or the file holds no model.
    """
    return check_checkpoint(load_plain(path), getattr(path, "name", path))


def save_checkpoint(state: Any, path: "str | os.PathLike") -> None:
    """Writes plain data and tensors with torch.save, atomically: see `replacing`."""
    with replacing(path) as stream:
        torch.save(state, stream)


def check_checkpoint(state: Any, name: object) -> dict:
    """Returns the content of the file `name`; raises `UserError` unless it is that of a fairseq checkpoint."""
    if isinstance(state, dict) and isinstance(state.get("kind"), str):
        raise UserError(f"{name} is not the checkpoint of a model but a {state['kind']}")
    parameters = state.get("model") if isinstance(state, dict) else None
    if not isinstance(parameters, dict) or not all(isinstance(parameter, str) for parameter in parameters):
        raise UserError(f"{name} is not a fairseq checkpoint: it holds no model parameters under the key 'model'")
    if not state.keys() & {"optimizer_history", "best_loss"}:  # fairseq once wrote the second
        raise UserError(f"{name} is not a fairseq checkpoint: it holds no 'optimizer_history'")
    return state


def check_finite(state: dict, path: object) -> None:
    """Raises `UserError` for a checkpoint, read from the file `path`, with NaN or infinite weights."""
    for name, value in state["model"].items():
        if torch.is_tensor(value) and value.is_floating_point() and not is_finite(value):
            raise UserError(f"{path} {NOT_FINITE} in {name}: the training that wrote it had diverged")


def is_finite(tensor: torch.Tensor) -> bool:
    """Whether all values of a tensor are finite; checks the minimum and maximum, which is faster than `isfinite`."""
    return not tensor.numel() or bool(torch.stack(tensor.aminmax()).isfinite().all())


@functools.cache
def allow_plain_types() -> None:
    """Adds what rebuilds plain data to the classes and functions that torch lets a file name besides tensors."""
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
    torch.serialization.add_safe_globals(allowed)


@contextlib.contextmanager
def readable(path: "str | os.PathLike") -> Iterator[None]:
    """Raises `UserError` in place of an OSError in its block, which reads the file `path`."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{os.fspath(path)} cannot be read as a checkpoint: {error.strerror or error}") from error


def _load_stream(stream: BinaryIO, name: str) -> Any:
    _check_parts(stream, name)
    try:
        allow_plain_types()
        return torch.load(stream, map_location="cpu", weights_only=True)
    except MemoryError:
        raise
    except Exception as error:  # a damaged file ends in nearly any exception, IndexError and KeyError included
        refused = re.search(r"GLOBAL (\S+)|function (\S+)|unsupported class (\S+)", str(error))
        if refused:
            what = next(filter(None, refused.groups()))
            raise UserError(
                f"{name} was refused: it holds {what}, and a checkpoint may hold only tensors and plain data "
                "(nothing in the file was run)"
            ) from error
        raise UserError(f"{name} {NO_CHECKPOINT} ({_first_line(error)})") from error


def _check_parts(stream: BinaryIO, name: str) -> None:
    """Compares the checksums of a zip file, which torch does not: zeros in its middle would become weights."""
    begins = stream.read(len(ZIP))
    stream.seek(0)
    if not begins:
        raise UserError(f"{name} {NO_CHECKPOINT} (it is empty)")
    if begins == ZIP:
        try:
            with zipfile.ZipFile(stream) as parts:
                damaged = parts.testzip()
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise UserError(f"{name} {NO_CHECKPOINT} (it has no table of contents)") from error
        if damaged:
            raise UserError(f"{name} {NO_CHECKPOINT} (its part {damaged} has another checksum)")
        stream.seek(0)


def _first_line(error: Exception) -> str:
    advice = ("Weights only load failed", "Cannot use ``weights_only")  # torch then says how to turn it off
    if isinstance(error, (LookupError, EOFError)) or str(error).startswith(advice):
        return "not a file of plain data written by torch.save"
    return type(error).__name__ + ": " + (str(error).splitlines() or [""])[0].split(". ")[0]
