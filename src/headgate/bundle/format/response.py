"""Load a response from a bundle, up to its payload (3.4 steps 1 to 11).

`response_parser` follows the document's steps. Nearly all responses are read by `read_common_response` from their first
bytes, in one pass; it returns None for any other, and a property test shows that both return the same.
"""

import re
from typing import Final

from headgate.bundle.format.cbor import BYTES, CborError, read_head
from headgate.bundle.format.constants import LONGEST_HEAD, MAX_HEADERS_SIZE
from headgate.bundle.format.header_decoder import FieldError, decode_common_headers, decode_headers
from headgate.bundle.format.incremental import Parser, ReadRequest
from headgate.bundle.model import Location, Profile, ResponseHead
from headgate.errors import ResponseError

__all__ = ["FIRST_READ_SIZE", "read_common_response", "response_parser"]

FIRST_READ_SIZE: Final = 1_024
"""Bytes that are requested first: enough for the headers of nearly any response."""

_COMMON_HEADERS: Final = re.compile(rb"\x82(?:\x58[\x18-\xff]|\x59(?!\x00)..)", re.DOTALL)
_COMMON_PAYLOAD: Final = re.compile(rb"[\x40-\x57]|\x58[\x18-\xff]|\x59(?!\x00)..|\x5a(?!\x00\x00)....", re.DOTALL)
"""Heads of byte strings in their only encoding: of 24 to 65535 bytes, and of less than four gigabytes."""


def response_parser(
    location: Location, *, profile: Profile = "strict", fallback_url: str | None = None
) -> Parser[ResponseHead]:
    """Load a response up to its payload (3.4 steps 1 to 11); raises `ResponseError`.

    Whether the payload is all there is for the driver to see, who alone knows if it wants it (step 12).
    """
    start = location.offset
    # Step 1, and as much of the response as its headers usually take.
    source = bytes((yield ReadRequest(start, min(location.length, FIRST_READ_SIZE))))
    usual = read_common_response(source, location)
    if usual is not None:
        return usual
    try:
        # The document reads on where a location is too short, and says so in step 11.
        if len(source) < 1 + LONGEST_HEAD:
            source = bytes((yield ReadRequest(start, 1 + LONGEST_HEAD)))
        size, headers_begin = _header_length(source)
        headers_end = headers_begin + size
        if len(source) < headers_end + LONGEST_HEAD:
            source = bytes((yield ReadRequest(start, headers_end + LONGEST_HEAD)))
        if len(source) < headers_end:
            raise _StepError(f"the headers of {size} bytes are cut", "3.4 step 5", headers_begin)
        status, headers = _headers(source[headers_begin:headers_end], headers_begin)
        payload_length, payload_begins = _string_head(source, headers_end, "3.4 step 10")
        # Step 9 comes before step 10, but whether an empty payload excuses it (compat) is known only now.
        if "content-type" not in headers and (profile == "strict" or payload_length):
            raise _StepError("there is no content-type", "3.4 step 9", headers_begin)
        if payload_begins + payload_length != location.length:
            fault = f"the response takes {payload_begins + payload_length} bytes, its location {location.length}"
            raise _StepError(fault, "3.4 step 11", payload_begins)
    except _StepError as error:
        raise ResponseError(
            error.reason, step=error.step, offset=start + error.offset, fallback_url=fallback_url
        ) from None
    return ResponseHead(status, headers, Location(start + payload_begins, payload_length))


def read_common_response(source: bytes, location: Location) -> ResponseHead | None:
    """Read a response up to its payload from its first bytes, if nothing about it is unusual; else None.

    What it takes, `response_parser` takes too, and gives the same; a property test holds them equal.
    """
    lead = _COMMON_HEADERS.match(source)
    if lead is None:
        return None
    begin = lead.end()
    end = begin + int.from_bytes(source[2:begin])
    lead = _COMMON_PAYLOAD.match(source, end)
    if lead is None:
        return None
    payload = lead.end()
    length = int.from_bytes(source[end + 1 : payload]) if payload > end + 1 else source[end] - 0x40
    found = decode_common_headers(source[begin:end])
    if found is None or payload + length != location.length:
        return None
    headers, status = found
    if len(status) != 3 or not status.isdigit() or "content-type" not in headers:
        return None
    return ResponseHead(int(status), headers, Location(location.offset + payload, length))


class _StepError(Exception):
    """A step is broken: why, which one, and at which byte of the response."""

    def __init__(self, reason: str, step: str, offset: int) -> None:
        super().__init__(reason, step, offset)
        self.reason = reason
        self.step = step
        self.offset = offset


def _header_length(source: bytes) -> tuple[int, int]:
    """Steps 2 to 4: the length of the header map, and where it begins."""
    if not source:
        raise _StepError("the bundle ends before the response", "3.4 step 1", 0)
    if source[0] != 0x82:
        raise _StepError(f"the response begins with 0x{source[0]:02x}, not 0x82", "3.4 step 2", 0)
    length, begins = _string_head(source, 1, "3.4 step 3")
    if length >= MAX_HEADERS_SIZE:
        fault = f"{length} bytes of headers, of which fewer than {MAX_HEADERS_SIZE} are taken"
        raise _StepError(fault, "3.4 step 4", 1)
    return length, begins


def _headers(source: bytes, offset: int) -> tuple[int, dict[str, str]]:
    """Steps 5 to 8: status and headers."""
    try:
        headers, pseudos = decode_headers(source)
    except CborError as error:
        raise _StepError(error.reason, f"3.4 step 5, {error.step}", offset + error.offset) from None
    except FieldError as error:
        raise _StepError(error.reason, f"3.4 step 6, {error.step}", offset) from None
    if pseudos.keys() != {b":status"}:
        names = ", ".join(repr(name[:40]) for name in list(pseudos)[:4]) or "none"
        raise _StepError(f"the pseudo-headers must be :status alone, and are {names}", "3.4 step 7", offset)
    status = pseudos[b":status"]
    if len(status) != 3 or not status.isdigit():
        raise _StepError(f"the status {status[:40]!r} is not three digits", "3.4 step 8", offset)
    return int(status), headers


def _string_head(source: bytes, position: int, step: str) -> tuple[int, int]:
    """Get the length of a CBOR bytestring header (3.5.2), and where its contents begin."""
    try:
        major, length, contents = read_head(source, position)
    except CborError as error:
        raise _StepError(error.reason, f"{step}, {error.step}", error.offset) from None
    if major != BYTES:
        raise _StepError("there is no byte string", f"{step}, 3.5.2 step 2", position)
    return length, contents
