"""Checks a pickle before torch reads it: torch runs no code of a pickle, but may take any time and memory for it.

A pickle refers to an earlier value by its number. So some hundred bytes can describe nested tuples, each of which holds
the next one twice: hashing them as a key of a dict, or printing them in an error, takes time exponential in the depth.
Numbers can be chosen so that they collide as keys of a dict. Each call of a permitted class, such as list or bytearray,
copies a value or allocates memory.
"""

import pickletools
from typing import Any, BinaryIO, NamedTuple

from torch.serialization import MAGIC_NUMBER as _MAGIC  # begins torch's earlier format

from fairseq_xl.io import bounds

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
