"""The wire format of protocol buffers: fields of a message, without a description of the message.

A field has a number and a value: an integer, or bytes (also text, a message, or a float of 4 bytes).
"""

import struct
from collections.abc import Iterator
from typing import Any

_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5  # wire types
_SIZES = {_EIGHT: 8, _FOUR: 4}


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yields number and value of each field, an integer or bytes; raises `ValueError` for a damaged message."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, place = _varint(message, place)
            yield number, value
            continue
        if kind == _BYTES:
            size, place = _varint(message, place)
        elif kind in _SIZES:
            size = _SIZES[kind]
        else:
            raise ValueError(f"field {number} has the wire type {kind}")
        if place + size > len(message):
            raise ValueError(f"field {number} is cut short")
        yield number, message[place : place + size]
        place += size


def field(number: int, value: int | float | str | bytes) -> bytes:
    """A field of a message; an integer must not be negative unless it is an int32 (10 bytes, two's complement)."""
    if isinstance(value, float):
        return _packed(number << 3 | _FOUR) + struct.pack("<f", value)
    if isinstance(value, int):
        return _packed(number << 3 | _VARINT) + _packed(value % (1 << 64))
    content = value.encode("utf-8") if isinstance(value, str) else value
    return _packed(number << 3 | _BYTES) + _packed(len(content)) + content


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """The integer at a place, 7 bits a byte, and the place after it."""
    value = 0
    for shift in range(0, 70, 7):
        if place == len(message):
            break
        byte, place = message[place], place + 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise ValueError("an integer is cut short")


def _packed(value: int) -> bytes:
    content = bytearray()
    while value > 0x7F:
        content.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*content, value))
