"""Decode and verify responses that were signed, whose payloads are stored as `mi-sha256-03`.

Browsers and HTTP libraries do not support that content coding. A decoded response is byte for byte what it was before
signing, so its entity tag and its other codings are valid. Other responses are left as they are.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

from msgspec import Struct

from headgate.bundle.format import merkle_integrity
from headgate.bundle.format.incremental import Parser
from headgate.bundle.model import NOSNIFF, Location, Metadata, Response
from headgate.errors import ResponseError

_STEP: Final = "draft-thomson-http-mice-03, 2.2"


class DecodedContent(Struct, frozen=True):
    """The content of a response."""

    headers: dict[str, str]
    """The stored headers, as they were before signing."""
    layout: merkle_integrity.PayloadLayout
    """Where the content is in the stored payload."""


class DecodedResponse(Struct, frozen=True):
    """A response whose payload is here and verified."""

    status: int
    decoded: DecodedContent
    payload: memoryview
    """As stored."""

    @property
    def headers(self) -> dict[str, str]:
        """The headers with `x-content-type-options: nosniff`, so that no media type is guessed (3.4 step 9)."""
        return {**self.decoded.headers, NOSNIFF[0]: NOSNIFF[1]}

    @property
    def length(self) -> int:
        """Bytes of the content."""
        return self.decoded.layout.length

    def pieces(self, start: int, stop: int) -> Iterator[memoryview]:
        """Yield the content from `start` to before `stop`; nothing is copied."""
        for offset, length in self.decoded.layout.spans(start, min(stop, self.length)):
            yield self.payload[offset : offset + length]


class OpenedBundle(Protocol):
    """A bundle in a file, in memory or on a server."""

    @property
    def start(self) -> int:
        """Bytes before the bundle."""
        ...

    @property
    def metadata(self) -> Metadata:
        """Its metadata."""
        ...


def has_mi_coding(headers: Mapping[str, str]) -> bool:
    """Return whether a response is coded as `mi-sha256-03`."""
    return merkle_integrity.without_mi_coding(headers.get("content-encoding", "")) is not None


def decode_response(
    bundle: OpenedBundle, location: Location, response: Response, *, used: Callable[[memoryview], None] | None = None
) -> DecodedResponse:
    """Decode the response at a location of a bundle; `used` is called after each piece that was read.

    Raises `ResponseError`.
    """
    source = response.payload
    # 3.4 step 11: nothing follows the payload in its response.
    payload = Location(bundle.start + location.offset + location.length - len(source), len(source))
    parser = mi_decoding_parser(response.stored_headers, payload, fallback_url=bundle.metadata.primary_url)
    try:
        need = next(parser)
        while True:
            begin = need.offset - payload.offset
            need = parser.send(source[begin : begin + need.length])
            if used is not None:
                used(source)
    except StopIteration as done:
        return DecodedResponse(response.status, done.value, source)


def mi_decoding_parser(
    headers: Mapping[str, str], payload: Location, *, fallback_url: str | None = None
) -> Parser[DecodedContent]:
    """Verify a payload by its own proofs, and return the content; raises `ResponseError`."""
    codings = merkle_integrity.without_mi_coding(headers.get("content-encoding", ""))
    if codings is None:
        return DecodedContent(dict(headers), merkle_integrity.PayloadLayout(payload.length))
    proof = merkle_integrity.parse_mi_digest(headers.get("digest", ""))
    try:
        if proof is None:
            raise merkle_integrity.MerkleIntegrityError(
                f"a Digest header with {merkle_integrity.MI_CODING} is missing", payload.offset
            )
        layout = yield from merkle_integrity.payload_layout_parser(payload, proof)
    except merkle_integrity.MerkleIntegrityError as error:
        raise ResponseError(str(error), step=_STEP, offset=error.offset, fallback_url=fallback_url) from None
    # Digests are of the coded bytes.
    shown = {name: value for name, value in headers.items() if name != "digest"}
    shown["content-encoding"] = codings
    if not codings:
        del shown["content-encoding"]
    if "content-length" in shown:
        shown["content-length"] = str(layout.length)
    return DecodedContent(shown, layout)
