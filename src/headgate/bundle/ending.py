"""Where a bundle begins that was appended to something else: told by the length at its end (3.3.6)."""

from typing import Final

from headgate.bundle.need import Need, Parser
from headgate.errors import FormatError

__all__ = ["TRAILER", "start_parser"]

TRAILER: Final = 9
"""Bytes of the length at a bundle's end: the head of an 8-byte string, and a big-endian integer."""


def start_parser(size: int) -> Parser[int]:
    """Find the first byte of the bundle that ends with the last of `size` bytes (3.3.6 steps 1 to 4)."""
    offset = max(size - TRAILER, 0)
    trailer = bytes((yield Need(offset, TRAILER)))
    if len(trailer) < TRAILER or trailer[0] != 0x48:
        fault = f"no 8-byte string ends the file, which has {size} bytes"
        raise FormatError(fault, step="3.3.6 step 1", offset=offset)
    length = int.from_bytes(trailer[1:], "big")
    if length > size:
        fault = f"a bundle of {length} bytes does not fit in the {size} there are"
        raise FormatError(fault, step="3.3.6 step 3", offset=size - 8)
    return size - length
