"""Load responses as they are stored, for signatures: whatever profile compat accepts."""

from msgspec import Struct

from headgate.bundle.format.cbor import read_head
from headgate.bundle.format.incremental import drive, reads_from
from headgate.bundle.format.response import response_parser
from headgate.bundle.model import Location
from headgate.bundle.reading.reader import Bundle
from headgate.errors import ResponseError


class RawResponse(Struct, frozen=True):
    """One response of a bundle."""

    status: int
    headers: dict[str, str]
    header_map: memoryview
    """The bytes that the headers were read from: what `header-sha256` is over."""
    payload: memoryview


class RawResponses:
    """Loads responses of one bundle, by their location."""

    def __init__(self, bundle: Bundle) -> None:
        self._raw = bundle.raw
        self._start = bundle.start
        self._fallback_url = bundle.metadata.primary_url

    def load(self, location: Location) -> RawResponse:
        """Load a response that can be read at all; raises `ResponseError`.

        Profile compat is used: a signature is valid or not whatever else readers require of a response.
        """
        raw = self._raw
        try:
            head = drive(response_parser(location, profile="compat", fallback_url=self._fallback_url), reads_from(raw))
        except ResponseError as error:
            error.offset += self._start
            raise
        start, length = head.payload.offset, head.payload.length
        if start + length > len(raw):
            cut = f"the payload of {length} bytes is cut"
            raise ResponseError(cut, step="3.4 step 12", offset=start + self._start, fallback_url=self._fallback_url)
        # 3.4 step 2 and 3: 0x82, and the head of the header map's byte string
        _, header_length, begin = read_head(raw[location.offset + 1 : location.offset + 10])
        begin += location.offset + 1
        return RawResponse(
            head.status, head.stored_headers, raw[begin : begin + header_length], raw[start : start + length]
        )
