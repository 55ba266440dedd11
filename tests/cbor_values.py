"""Decode CBOR to plain values, with a decoder that shares nothing with headgate's."""

import struct
from typing import Any

_FLOATS = {25: ">e", 26: ">f", 27: ">d"}


def decode(source: bytes) -> Any:
    """Return the value of one well-formed item."""
    value, end = _decode(source, 0)
    assert end == len(source)
    return value


def _decode(source: bytes, position: int) -> tuple[Any, int]:
    major, low = source[position] >> 5, source[position] & 0x1F
    size = {24: 1, 25: 2, 26: 4, 27: 8}.get(low, 0)
    content = source[position + 1 : position + 1 + size]
    argument = int.from_bytes(content) if size else low
    position += 1 + size
    match major:
        case 0:
            return argument, position
        case 1:
            return -1 - argument, position
        case 2:
            return source[position : position + argument], position + argument
        case 3:
            return source[position : position + argument].decode(), position + argument
        case 4 | 5:
            members = []
            for _ in range(argument * (major - 3)):
                member, position = _decode(source, position)
                members.append(member)
            return members if major == 4 else dict(zip(members[::2], members[1::2], strict=True)), position
        case 6:
            return _decode(source, position)
        case _:
            value = struct.unpack(_FLOATS[low], content)[0] if low in _FLOATS else {20: False, 21: True}.get(low)
            return value, position
