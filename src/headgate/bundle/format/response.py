"""Load a response from a bundle, up to its payload (3.4 steps 1 to 11)."""

from typing import Final

from headgate.bundle.format.cbor import BYTES, LONGEST_HEAD, CborError, head_size, read_head
from headgate.bundle.format.headers import MAX_HEADERS_SIZE, FieldError, decode_headers
from headgate.bundle.format.incremental import Parser, ReadRequest
from headgate.bundle.model import Location, Profile, ResponseHead
from headgate.errors import ResponseError

FIRST_READ_SIZE: Final = 1_024
"""Bytes that are requested first: enough for the headers of nearly any response."""


def response_parser(
    location: Location, *, profile: Profile = "strict", fallback_url: str | None = None
) -> Parser[ResponseHead]:
    """Load a response up to its payload (3.4 steps 1 to 11); raises `ResponseError`.

    Whether the payload is complete (step 12) is for the driver to check, which alone knows if it reads the payload.
    """
    size = min(location.length, FIRST_READ_SIZE)
    while True:
        source = bytes((yield ReadRequest(location.offset, size)))
        found = decode_response_head(source, size, location, profile, fallback_url)
        if not isinstance(found, int):
            return found
        size = found


def decode_response_head(
    source: bytes, requested: int, location: Location, profile: Profile, fallback_url: str | None
) -> ResponseHead | int:
    """Decode a response up to its payload from its first bytes, of which `requested` were asked for.

    Returns the number of bytes to request instead where more are needed. Raises `ResponseError`.
    """
    is_all = len(source) < requested
    try:
        # The document reads beyond a location that is too short; step 11 refuses it.
        if len(source) < 1 + LONGEST_HEAD and not is_all:
            return 1 + LONGEST_HEAD
        size, headers_begin = _header_length(source)
        headers_end = headers_begin + size
        left = len(source) - headers_end
        if left < LONGEST_HEAD and not is_all and (left < 1 or left < head_size(source[headers_end])):
            return headers_end + LONGEST_HEAD
        if len(source) < headers_end:
            raise _StepError(f"the headers of {size} bytes are cut", "3.4 step 5", headers_begin)
        status, headers = _headers(source[headers_begin:headers_end], headers_begin)
        payload_length, payload_begins = _string_head(source, headers_end, "3.4 step 10")
        # Step 9 comes before step 10, but whether an empty payload excuses it (compat) is known only now.
        if "content-type" not in headers and (profile == "strict" or payload_length):
            raise _StepError("content-type is missing", "3.4 step 9", headers_begin)
        if payload_begins + payload_length != location.length:
            fault = f"the response takes {payload_begins + payload_length} bytes, its location {location.length}"
            raise _StepError(fault, "3.4 step 11", payload_begins)
    except _StepError as error:
        raise ResponseError(
            error.reason, step=error.step, offset=location.offset + error.offset, fallback_url=fallback_url
        ) from None
    return ResponseHead(status, headers, Location(location.offset + payload_begins, payload_length))


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
    status = pseudos.get(b":status")
    if status is None or len(pseudos) > 1:
        names = ", ".join(repr(name[:40]) for name in list(pseudos)[:4]) or "none"
        raise _StepError(f"the pseudo-headers must be :status alone, and are {names}", "3.4 step 7", offset)
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
        raise _StepError("there is not a byte string", f"{step}, 3.5.2 step 2", position)
    return length, contents
