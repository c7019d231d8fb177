"""Checks a pickle before torch reads it. torch runs nothing in a pickle, but it works for as long as one asks for.

A pickle refers to an earlier value by its number. Some hundred bytes thus write a tuple of twice the same tuple, of
twice the same tuple, and so on: its hash, as a key of a dict, or its text, in an error, is never finished. Integers of
more than 64 bits may all have the same hash.
"""

import pickletools
from typing import BinaryIO

from torch.serialization import MAGIC_NUMBER as _MAGIC  # begins torch's earlier format

from fairseq_xl.io import bounds

_READ = {"GET", "BINGET", "LONG_BINGET"}
_KEPT = {"PUT", "BINPUT", "LONG_BINPUT"}
_NAMES = {"GLOBAL", "STACK_GLOBAL"}
_KEYS = {"SETITEM", "SETITEMS"}
_CALLS = {"REDUCE", "NEWOBJ"}
#: objects of one value, that are hashed and written in no time
_SCALARS = {pickletools.pynone, pickletools.pybool, pickletools.pyinteger_or_bool, pickletools.pyint}
_SCALARS |= {pickletools.pyfloat, pickletools.pyunicode, pickletools.pybytes, pickletools.pybytes_or_str}
#: classes that hash the values in a call; pickle writes sets so, but the keys of dicts behind a call without values
_HASHING = {"builtins set", "__builtin__ set", "builtins frozenset", "__builtin__ frozenset", "builtins dict"}
_HASHING |= {"__builtin__ dict", "collections OrderedDict", "collections Counter"}


def check_pickle(stream: BinaryIO) -> None:
    """Reads the instructions of a pickle, and no more, from a stream, and builds nothing.

    Raises:
        OverflowError: torch might work on it for ever, or for minutes: it has more than `bounds.MOST_INSTRUCTIONS`, or
            a value of as many values, each counted where it is referred to; an integer of more than 64 bits; a key that
            is neither text nor a number; a call that makes a set or dict of values, or of what is no function.
        ValueError, LookupError: it is damaged.
    """
    # the number of values in each object, 0 for a scalar, or the name of a class or function
    stack: list[int | str] = []
    outer: list[list[int | str]] = []  # the stacks below the last mark, which begins the values of a list or dict
    memo: dict[int | None, int | str] = {}
    for number, (instruction, argument, _) in enumerate(pickletools.genops(stream)):
        name, before, values = instruction.name, instruction.stack_before, 0
        if name in _READ:
            stack.append(memo[argument])
        elif name in _KEPT:
            memo[argument] = stack[-1]
        elif name in _NAMES:
            stack.append(str(argument))
        elif name == "MARK":
            outer.append(stack)
            stack = []
        else:
            marked: list[int | str] = []
            if pickletools.markobject in before:
                marked, stack = stack, outer.pop()
                before = before[: before.index(pickletools.markobject)]
            begin = len(stack) - len(before)
            if begin < 0:
                raise LookupError("an instruction without its values")
            taken = stack[begin:] + marked
            del stack[begin:]
            if name in _KEYS and any(taken[1::2]):
                raise OverflowError("a key that is neither text nor a number")
            if name in _CALLS and not isinstance(taken[0], str):
                raise OverflowError("a call of what is no function")
            if name in _CALLS and taken[0] in _HASHING and taken[1] != 1:
                raise OverflowError(f"a call of {taken[0]} with values")
            values = sum(max(1, value) for value in taken if isinstance(value, int))
            if isinstance(argument, int) and abs(argument) >= 1 << 64 and argument != _MAGIC:
                raise OverflowError("an integer of more than 64 bits")
            stack += [0 if made in _SCALARS else 1 + values for made in instruction.stack_after]
        if max(number, values) > bounds.MOST_INSTRUCTIONS:
            raise OverflowError(f"more than {bounds.MOST_INSTRUCTIONS:,} values")
