"""Load a response from a bundle, up to its payload (3.4 steps 1 to 11)."""

from typing import Final

from headgate.bundle.format.cbor import LONGEST_HEAD, CborError, StepError, head_size, read_string_head
from headgate.bundle.format.headers import MAX_HEADERS_SIZE, decode_headers
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
    try:
        found = decode_head(source, requested, location.length, profile)
    except StepError as error:
        raise response_error(error, location, fallback_url) from None
    if isinstance(found, int):
        return found
    status, headers, payload = found
    return ResponseHead(status, headers, Location(location.offset + payload, location.length - payload))


def decode_head(source: bytes, requested: int, length: int, profile: Profile) -> tuple[int, dict[str, str], int] | int:
    """Decode a response of `length` bytes to its status, its headers, and where in it the payload begins.

    Otherwise as `decode_response_head`; raises `StepError`, with the offset in the response.
    """
    available = len(source)
    step = "3.4 step 3"
    try:
        # The document reads beyond a location that is too short; step 11 refuses it.
        if available <= LONGEST_HEAD and available >= requested:
            return 1 + LONGEST_HEAD
        if not source or source[0] != 0x82:
            raise _wrong_array(source)
        size, begin = read_string_head(source, 1)
        if size >= MAX_HEADERS_SIZE:
            fault = f"{size} bytes of headers, of which fewer than {MAX_HEADERS_SIZE} are taken"
            raise StepError(fault, "3.4 step 4", 1)
        end = begin + size
        left = available - end
        if left < LONGEST_HEAD:
            if available >= requested and (left < 1 or left < head_size(source[end])):
                return end + LONGEST_HEAD
            if left < 0:
                raise StepError(f"the headers of {size} bytes are cut", "3.4 step 5", begin)
        status, headers = decode_headers(source[begin:end], begin)
        step = "3.4 step 10"
        payload_length, payload = read_string_head(source, end)
        # Step 9 comes before step 10, but whether an empty payload excuses it (compat) is known only now.
        if "content-type" not in headers and (payload_length or profile == "strict"):
            raise StepError("content-type is missing", "3.4 step 9", begin)
        if payload + payload_length != length:
            fault = f"the response takes {payload + payload_length} bytes, its location {length}"
            raise StepError(fault, "3.4 step 11", payload)
    except CborError as error:
        raise StepError(error.reason, f"{step}, {error.step}", error.offset) from None
    return status, headers, payload


def response_error(error: StepError, location: Location, fallback_url: str | None) -> ResponseError:
    """Return the error of the response at a location."""
    return ResponseError(
        error.reason, step=error.step, offset=location.offset + error.offset, fallback_url=fallback_url
    )


def _wrong_array(source: bytes) -> StepError:
    if not source:
        return StepError("the bundle ends before the response", "3.4 step 1", 0)
    return StepError(f"the response begins with 0x{source[0]:02x}, not 0x82", "3.4 step 2", 0)
