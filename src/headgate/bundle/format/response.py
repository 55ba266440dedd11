"""Load a response from a bundle, up to its payload (3.4 steps 1 to 11)."""

from headgate.bundle.format.cbor import CborError, StepError, string_head_parser
from headgate.bundle.format.headers import MAX_HEADERS_SIZE, decode_headers
from headgate.bundle.format.incremental import Parser, ReadRequest
from headgate.bundle.model import Location, Profile, ResponseHead
from headgate.errors import ResponseError


def response_parser(
    location: Location, *, profile: Profile = "strict", fallback_url: str | None = None
) -> Parser[ResponseHead]:
    """Load a response up to its payload (3.4 steps 1 to 11), requesting no byte of it; raises `ResponseError`.

    Whether the payload is complete (step 12) is for the driver to check, which alone knows if it reads the payload.
    """
    try:
        return (yield from _head_parser(location, profile))
    except StepError as error:
        raise ResponseError(error.reason, step=error.step, offset=error.offset, fallback_url=fallback_url) from None


def _head_parser(location: Location, profile: Profile) -> Parser[ResponseHead]:
    start, step = location.offset, "3.4 step 3"
    first = bytes((yield ReadRequest(start, 1)))
    if not first:
        raise StepError("the bundle ends before the response", "3.4 step 1", start)
    if first != b"\x82":
        raise StepError(f"the response begins with 0x{first.hex()}, not 0x82", "3.4 step 2", start)
    try:
        # The document reads beyond a location that is too short; step 11 refuses it.
        size, begin = yield from string_head_parser(start + 1)
        if size >= MAX_HEADERS_SIZE:
            fault = f"the headers have {size} bytes; the maximum is {MAX_HEADERS_SIZE - 1}"
            raise StepError(fault, "3.4 step 4", start + 1)
        source = bytes((yield ReadRequest(begin, size)))
        if len(source) < size:
            raise StepError(f"the headers of {size} bytes are cut", "3.4 step 5", begin)
        status, headers = decode_headers(source, begin)
        step = "3.4 step 10"
        length, payload = yield from string_head_parser(begin + size)
    except CborError as error:
        raise StepError(error.reason, f"{step}, {error.step}", error.offset) from None
    # Step 9 comes before step 10, but whether an empty payload excuses it (compat) is known only now.
    if "content-type" not in headers and (length or profile == "strict"):
        raise StepError("content-type is missing", "3.4 step 9", begin)
    taken = payload + length - start
    if taken != location.length:
        raise StepError(f"the response takes {taken} bytes, its location {location.length}", "3.4 step 11", payload)
    return ResponseHead(status, headers, Location(payload, length))
