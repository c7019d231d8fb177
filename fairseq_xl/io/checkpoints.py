"""Reading and writing checkpoints: plain data and tensors only; nothing in a file is run.

torch runs no code of a pickle, but may take any time and memory for it: `check_pickle` reads it first. A pickle refers
to an earlier value by its number. So some hundred bytes can describe nested tuples, each of which holds the next one
twice: hashing them as a key of a dict, or printing them in an error, takes time exponential in the depth. Numbers can
be chosen so that they collide as keys of a dict. Each call of a permitted class, such as list or bytearray, copies a
value or allocates memory.
"""

import argparse
import collections
import functools
import io
import os
import pickletools
import re
import typing
import zipfile
from typing import Any, BinaryIO, NamedTuple

import numpy
import omegaconf
import torch
from torch.serialization import MAGIC_NUMBER as _MAGIC  # begins torch's earlier format

from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io import bounds
from fairseq_xl.io.files import SURROGATE, is_whole_file, replacing

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
_SCALARS = {pickletools.pynone, pickletools.pybool, pickletools.pyinteger_or_bool, pickletools.pyint}
_SCALARS |= {pickletools.pyfloat, pickletools.pyunicode, pickletools.pybytes, pickletools.pybytes_or_str}
#: instructions that push one value, which is hashed and printed in constant time
_CONSTANTS = {opcode.name for opcode in pickletools.opcodes if len(opcode.stack_after) == 1 and not opcode.stack_before}
_CONSTANTS &= {opcode.name for opcode in pickletools.opcodes if set(opcode.stack_after) <= _SCALARS}
#: functions whose results are no larger than their arguments in the file
_FUNCTIONS = {f"torch._utils _rebuild_{kind}" for kind in ("tensor", "tensor_v2", "tensor_v3", "parameter")}
_FUNCTIONS |= {f"torch._utils _rebuild_{kind}" for kind in ("parameter_with_state", "sparse_tensor", "qtensor")}
_FUNCTIONS |= {"torch._utils _rebuild_meta_tensor_no_storage", "torch.nn.parameter Parameter"}
_FUNCTIONS |= {"torch device", "torch.serialization _get_layout"}
_FUNCTIONS |= {f"numpy.{core}.multiarray scalar" for core in ("core", "_core")}
_ARRAYS = {f"numpy.{core}.multiarray _reconstruct" for core in ("core", "_core")}
_MODULES = {"__builtin__", "_codecs", "builtins", "collections", "numpy", "omegaconf", "torch"}  # that torch may call
_WITH_TUPLES = ("numpy", "torch")  # whose objects BUILD gives tuples; it gives others a dict
_LONGEST_TYPE = 100  # letters of a numpy.dtype
_COST_OF_A_NUMBER = 100  # as a key that does not follow the one before: at worst it is compared with all others


def load_plain(path: "str | os.PathLike | BinaryIO", mapped: bool = False) -> Any:
    """Reads a file of plain data and tensors written by torch.save; the tensors are on the CPU.

    With a name, tensors may stay in the file until they are used (`mapped`): checksums are then not compared. Raises
    `UserError` for a file that is missing, damaged or of another kind, or holds anything else, which is not run: torch
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
            f"{name}: there is no such file or folder, and nothing is downloaded: `fairseq-xl model convert FOLDER "
            "OUT` makes a checkpoint of a published model's files"
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
    raise UserError(f"{name} was refused: it has {structure:,} bytes beside its tensors' values, more than {most:,}")


class _Value(NamedTuple):
    size: int  # values in it, 0 for a scalar
    kind: str = ""  # "scalar", "global", "tuple", "dict", or the function that returns it
    content: Any = None  # of a scalar or global; of a tuple, its items


def check_pickle(stream: BinaryIO) -> None:
    """Reads the instructions of a pickle, and no more, from a stream, and builds nothing.

    Raises:
        OverflowError: torch might work on it for ever, or for minutes, or allocate gigabytes: it has more than
            `bounds.MOST_INSTRUCTIONS`, or a value of as many values, each counted where it is referred to, or keys and
            arguments of as many; an integer of more than 64 bits; a key that is neither text, a number nor a tuple of
            texts; a call other than those that torch.save writes for tensors, numbers of numpy and plain data.
        ValueError, LookupError: it is damaged, or calls what torch refuses.
    """
    stack: list[_Value] = []
    outer: list[list[_Value]] = []  # the stacks below the last mark, which begins the values of a list or dict
    memo: dict[int | None, _Value] = {}
    cost, last = 0, None  # of all keys and arguments; the last number that is a key
    for index, (instruction, argument, _) in enumerate(pickletools.genops(stream)):
        name, values = instruction.name, 0
        if name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            memo[argument] = stack[-1]
        elif name in _CONSTANTS:
            if isinstance(argument, int) and abs(argument) >= 1 << 64 and argument != _MAGIC:
                raise OverflowError("an integer of more than 64 bits")
            stack.append(_Value(0, "scalar", argument))
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            stack.append(_Value(0, "global", str(argument)))
        elif name == "MARK":
            outer.append(stack)
            stack = []
        else:
            before, marked = instruction.stack_before, []
            if pickletools.markobject in before:
                marked, stack = stack, outer.pop()
                before = before[: before.index(pickletools.markobject)]
            begin = len(stack) - len(before)
            if begin < 0:
                raise LookupError("an instruction without its values")
            taken = stack[begin:] + marked
            del stack[begin:]
            values = sum([value.size or 1 for value in taken])
            kind, content = "", None
            if name in ("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_TUPLE"):
                kind, content = "tuple", tuple(taken)
            elif name in ("SETITEM", "SETITEMS"):
                kind = taken[0].kind
                for key in taken[1::2]:
                    _check_key(key)
                    if isinstance(key.content, (int, float)):
                        cost += 0 if last is not None and key.content == last + 1 else _COST_OF_A_NUMBER
                        last = key.content
                    cost += key.size
            elif name in ("REDUCE", "NEWOBJ"):
                _check_call(*taken)
                cost, kind = cost + values, taken[0].content
            elif name == "BUILD":
                kind = taken[0].kind
                if taken[1].kind != "dict" and not kind.startswith(_WITH_TUPLES):
                    raise OverflowError("an object whose attributes are no dict")
            elif pickletools.pydict in instruction.stack_after:
                kind = "dict"
            stack += [_Value(1 + values, kind, content)] * len(instruction.stack_after)
        if index > bounds.MOST_INSTRUCTIONS or values + cost > bounds.MOST_INSTRUCTIONS:
            raise OverflowError(f"more than {bounds.MOST_INSTRUCTIONS:,} values")


def _check_key(value: _Value) -> None:
    """Raises `OverflowError` for a key of a dict that no checkpoint has; those of XLM have pairs of languages."""
    if value.kind == "tuple" and value.content:
        is_allowed = all(isinstance(item.content, str) and item.kind == "scalar" for item in value.content)
    else:
        is_allowed = value.kind == "scalar"
    if not is_allowed:
        raise OverflowError("a key that is neither text, a number nor a tuple of texts")


def _check_call(function: _Value, arguments: _Value) -> None:
    """Raises `OverflowError` for a call with arguments that torch.save does not write for `check_pickle`'s data."""
    if function.kind != "global":
        raise OverflowError("a call of what is no function")
    if arguments.kind != "tuple":
        raise OverflowError("a call without a tuple of arguments")
    name, items = function.content, arguments.content
    kinds, contents = [item.kind for item in items], [item.content for item in items]
    if name == "_codecs encode":  # bytes; other encodings make more of them, or take for ever
        is_allowed = len(items) == 2 and kinds == ["scalar"] * 2 and contents[1] == "latin1"
    elif name == "collections defaultdict":
        is_allowed = kinds == ["global"]
    elif name == "numpy dtype":
        is_allowed = kinds[:1] == ["scalar"] and len(str(contents[0])) <= _LONGEST_TYPE
    elif name == "torch Size":  # a list may grow after it was counted
        is_allowed = kinds == ["tuple"]
    elif name in _ARRAYS:  # an empty array
        is_allowed = kinds[1:2] == ["tuple"] and [item.content for item in contents[1]] == [0]
    else:
        is_allowed = name in _FUNCTIONS
    if items and not is_allowed:
        if name.split(" ")[0].split(".")[0] in _MODULES:
            raise OverflowError(f"a call of {name} with values")
        raise LookupError(f"GLOBAL {name.replace(' ', '.')}")  # as torch's error
