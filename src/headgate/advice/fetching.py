"""Fetching traffic advice, as data: the request to make, and what its response means (traffic-advice.txt, section 5).

A shell sends an `AdviceRequest` once, follows no redirect, and collects the response with a `ResponseCollector`, which
limits the body and decodes it. `interpret` returns the result. Nothing here sends or waits, and no response raises an
error.
"""

import zlib
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from headgate.advice.identity import AgentIdentity
from headgate.advice.parser import UNREACHABLE, AdviceEntry, AdviceResult, decode_utf8, parse_advice_bytes, parse_json
from headgate.http.fields import Pairs, lines_of
from headgate.http.media_type import extract_essence
from headgate.http.url import is_potentially_trustworthy, serialised_origin

PATH: Final = "/.well-known/traffic-advice"
"""The path of the document on every origin (section 10.1)."""

MEDIA_TYPE: Final = "application/trafficadvice+json"
"""The media type of the document: agents ignore a document of another type (section 5, processResponse step 8)."""

MAX_BODY_BYTES: Final = 512 * 1024
"""Maximum bytes of a body, before and after decoding. A longer one counts as incomplete."""

ADVICE_TIMEOUT: Final = 5.0
"""Maximum seconds of a fetch, from the name resolution to the last byte of the body."""

_LONGEST: Final = 100
_UNREACHABLE_STATUSES: Final = frozenset({429, 503})
_REDIRECT_STATUSES: Final = frozenset({301, 302, 303, 307, 308})
_NULL_BODY_STATUSES: Final = frozenset({101, 103, 204, 205, 304})


class AdviceRequest(msgspec.Struct, frozen=True):
    """The one request of a fetch: a GET without a body, without credentials, whose redirects are not followed."""

    url: str
    """The traffic advice URL."""

    fields: tuple[tuple[str, str], ...]
    """All fields to send, except those that HTTP requires, such as Host."""

    any_type: bool = False
    """Whether the body of any ok response is wanted, cut at its limit, whatever its media type."""

    redirects: int = 0
    """How many redirects are followed, by requests of their own."""

    def needs_body(self, status: int, fields: Pairs) -> bool:
        """Return whether the body decides the result; otherwise the fetch ends after the head."""
        return 200 <= status <= 299 if self.any_type else needs_body(status, fields)

    @property
    def is_conditional(self) -> bool:
        """Whether the response may be a 304."""
        return any(name.startswith("If-") for name, _ in self.fields)


class AdviceResponse(NamedTuple):
    """The response to a request, or why there is none."""

    status: int
    """The status code; 0 without a complete response head."""

    fields: Pairs
    """The fields of the head, one character per byte."""

    body: bytes | None
    """The decoded body; None if it was not read, or is incomplete."""

    failure: str = ""
    """What failed, for logs and reports."""


class Interpretation(NamedTuple):
    """A result and its reason."""

    result: Any
    """An `AdviceResult`; other well-known resources have their own."""
    reason: str
    """A sentence without its full stop."""


def too_late(seconds: float = ADVICE_TIMEOUT) -> str:
    """Return the `failure` of a fetch that took too long."""
    return f"not within {seconds:g} s"


NETWORK_ERROR: Final = AdviceResponse(0, (), None)
"""The response if the connection failed, the response was not HTTP, or the time was over."""


def traffic_advice_url(origin: str) -> str | None:
    """Return the traffic advice URL of an origin; None for an origin without one, which must not be asked.

    `origin` may be any URL; only its origin is used. It must be an http or https origin whose responses cannot be
    changed in transit: https, or this machine.
    """
    serialised = serialised_origin(origin)
    if serialised is None:
        return None  # 1
    if not serialised.startswith(("https://", "http://")):
        return None  # 2
    if not is_potentially_trustworthy(serialised):
        return None  # 3
    return serialised + PATH  # 4


def advice_request(origin: str, identity: Iterable[str]) -> AdviceRequest | None:
    """Return the request for the traffic advice of an origin; None for an origin that must not be asked.

    It is small, so that it cannot amplify an attack (section 8.3), and identifies only the agent itself.
    """
    url = traffic_advice_url(origin)
    if url is None:
        return None
    # Field values are bytes; a brand name that is not ASCII is sent in UTF-8, one character per byte.
    agent = AgentIdentity(identity).brand.strip().encode("utf-8", "replace").decode("latin-1")
    # The document is too short to be worth a coding, and an unencoded body cannot be a decompression bomb.
    return AdviceRequest(url, (("Accept", MEDIA_TYPE), ("Accept-Encoding", "identity"), ("User-Agent", agent)))


def needs_body(status: int, fields: Pairs) -> bool:
    """Return whether the body decides the result; otherwise the fetch ends after the head."""
    return _by_head(status, fields) is None


def interpret(response: AdviceResponse, identity: Iterable[str]) -> AdviceResult:
    """Return the traffic advice result of a response for the agent with this `identity`."""
    result: AdviceResult = interpret_fully(response, identity).result
    return result


def interpret_fully(response: AdviceResponse, identity: Iterable[str]) -> Interpretation:
    """Return the result and its reason. The comments number the steps of processResponseEndOfBody."""
    early = _by_head(response.status, response.fields)
    if early is not None:
        return early if response.status else Interpretation(early.result, _join(early.reason, response.failure))
    body = response.body
    if body is None:
        return Interpretation(None, _join("the body is incomplete", response.failure))  # 1
    if len(body) > MAX_BODY_BYTES:
        return Interpretation(None, f"the body is longer than {MAX_BODY_BYTES} bytes")
    result = parse_advice_bytes(body, identity)  # 2, 3
    return Interpretation(result, _missing_advice_reason(body) if result is None else _describe(result))


def _by_head(status: int, fields: Pairs) -> Interpretation | None:
    """Return the result if the head decides it, otherwise None. The comments number the steps of processResponse."""
    if status == 0:
        return Interpretation(UNREACHABLE, "no response received")  # 1
    if status in _REDIRECT_STATUSES:
        return Interpretation(None, f"status {status} is a redirect, and redirects are not followed")  # 2
    if status in _UNREACHABLE_STATUSES:
        return Interpretation(UNREACHABLE, f"status {status}: the server is unavailable")  # 4
    if not 200 <= status <= 299:
        return Interpretation(None, f"status {status} is not an ok status")  # 5
    if status in _NULL_BODY_STATUSES:
        return Interpretation(None, f"status {status} has no body")  # 6
    essence = extract_essence(lines_of(fields, "content-type"))  # 7
    if essence != MEDIA_TYPE:
        return Interpretation(
            None, f"the media type is {essence[:80] if essence else 'missing'}, not {MEDIA_TYPE}"
        )  # 8
    return None


def _join(reason: str, failure: str) -> str:
    # The message of a library may quote any amount of the response.
    return f"{reason}: {failure[:_LONGEST]}" if failure else reason


def _describe(entry: AdviceEntry) -> str:
    if entry.disallowed:
        return "traffic is disallowed"
    return "all traffic is wanted" if entry.wants_all else f"a fraction of {entry.fraction:g} is wanted"


def _missing_advice_reason(body: bytes) -> str:
    """Return the reason why a document does not contain advice for this agent."""
    try:
        parsed = parse_json(decode_utf8(body))
    except ValueError:
        return "the document is not JSON"
    return "no entry is for this agent" if isinstance(parsed, list) else "the document is not a list"


_GZIP: Final = 16 + zlib.MAX_WBITS  # zlib's code for the gzip format


class ResponseCollector:
    """Collects one response from any HTTP client: call `head`, then `add` for each piece, then `whole` or `broken`.

    `wanted` decides by status and fields whether the body is read. A body that is too long is incomplete, unless
    `cuts`: then its beginning is the body.
    """

    def __init__(self, wanted: Callable[[int, Pairs], bool] = needs_body, *, cuts: bool = False) -> None:
        self._wanted = wanted
        self._cuts = cuts
        self._response = NETWORK_ERROR
        self._body = bytearray()

    def head(self, status: int, fields: Pairs) -> bool:
        """Take the status and the fields, one character per byte; return whether to read the body."""
        self._response = AdviceResponse(status, fields, None)
        return self._wanted(status, fields)

    def add(self, chunk: bytes) -> bool:
        """Take the next encoded bytes of the body; return whether to read on."""
        self._body += chunk
        return len(self._body) <= MAX_BODY_BYTES

    def whole(self) -> AdviceResponse:
        """Return the response once its body has ended or is too long; without the body if that is not intact."""
        if len(self._body) > MAX_BODY_BYTES:
            return self._response._replace(body=bytes(self._body)) if self._cuts else self.broken(_TOO_LONG)
        if not _is_complete(len(self._body), self._response.fields):
            return self.broken(f"the body ended after {len(self._body)} bytes, before its Content-Length")
        try:
            return self._response._replace(body=_decoded(bytes(self._body), self._response.fields))
        except (ValueError, zlib.error) as error:
            return self.broken(str(error))

    def broken(self, failure: str = "") -> AdviceResponse:
        """Return the head that was received, without a body, or `NETWORK_ERROR`."""
        return self._response._replace(failure=failure)


_TOO_LONG: Final = f"the body is longer than {MAX_BODY_BYTES} bytes"


def _is_complete(length: int, fields: Pairs) -> bool:
    """Return whether a body has its Content-Length: some clients do not report a connection that ended early."""
    lengths = lines_of(fields, "content-length")
    return bool(lines_of(fields, "transfer-encoding")) or not lengths or lengths[0].strip() == str(length)


def _decoded(body: bytes, fields: Pairs) -> bytes:
    """Decode gzip, which some servers use without being asked; raises `ValueError` or `zlib.error`.

    An unknown coding is left as it is, as the Fetch standard says.
    """
    codings = [line.strip(" \t").lower() for line in lines_of(fields, "content-encoding")]
    if codings not in (["gzip"], ["x-gzip"]):
        return body
    decompressor = zlib.decompressobj(_GZIP)
    plain = decompressor.decompress(body, MAX_BODY_BYTES + 1)
    if len(plain) > MAX_BODY_BYTES:
        raise ValueError(_TOO_LONG)
    if not decompressor.eof:
        raise ValueError("the gzip coding of the body is incomplete")
    return plain
