"""Which requests a bundle may answer, and the response to them: those of a cache (RFC 9111, section 4).

A bundle has whole responses to plain GETs. What only an origin can know or do is left to the network.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from headgate.http.accept import parse_weights
from headgate.http.conditional import Outcome, Validators, evaluate
from headgate.http.date import parse_http_date

SOURCE: Final = ("headgate-source", "bundle")
"""The field that a response out of a bundle has, at either end of a connection."""

_METHODS: Final = frozenset({"GET", "HEAD"})
_ORIGIN_ONLY: Final = ("if-match", "if-unmodified-since")
"""Preconditions that "are not applicable to a cache" (RFC 9111, 4.3.2)."""
_FRESHER: Final = frozenset({"no-cache", "no-store", "max-age", "min-fresh"})
"""Request directives (RFC 9111, 5.2.1) that require the origin, or an age, which bundles do not record."""
_OF_THE_CONNECTION: Final = frozenset({
    "connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
})  # fmt: skip
_OF_304: Final = frozenset({
    "cache-control", "content-location", "date", "etag", "expires", "vary", "x-content-type-options", "headgate-source",
})  # fmt: skip
"""What a 304 repeats of the response (RFC 9110, 15.4.5)."""
_WITHOUT_CONTENT: Final = frozenset({204, 205, 304})
_WITH_PRECONDITIONS: Final = frozenset({200, 203})


class CacheRequest(Struct, frozen=True):
    """A request that a bundle may answer."""

    method: str
    headers: Mapping[str, str]
    """Names in lower case."""
    only_stored: bool
    """`only-if-cached`: do not use the network (RFC 9111, 5.2.1.7)."""


class CachedResponse(Struct, frozen=True):
    """A response out of a bundle: of the payload, the bytes from `start` to before `stop`."""

    status: int
    headers: tuple[tuple[str, str], ...]
    start: int
    stop: int


def parse_request(method: str, headers: Mapping[str, str]) -> CacheRequest | None:
    """Return the request if a bundle may answer it, else None; header names are in lower case.

    Not for a bundle are methods other than GET and HEAD, bodies, preconditions on the origin's state, and a
    `Cache-Control` or `Pragma` that refuses stored responses.
    """
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    if method not in _METHODS or has_body or any(name in headers for name in _ORIGIN_ONLY):
        return None
    control = headers.get("cache-control")
    directives = _directives(headers.get("pragma", "") if control is None else control)
    if directives & _FRESHER:
        return None
    return CacheRequest(method, headers, "only-if-cached" in directives)


def make_response(request: CacheRequest, status: int, headers: Mapping[str, str], length: int) -> CachedResponse | None:
    """Return the response to a request from a stored one with a payload of `length` bytes.

    `headers` include nosniff. None where the request does not accept the stored content coding.
    """
    if not _is_decodable(headers.get("content-encoding"), request.headers.get("accept-encoding")):
        return None
    shown = {name: value for name, value in headers.items() if name not in _OF_THE_CONNECTION}
    shown[SOURCE[0]] = SOURCE[1]
    shown.pop("content-length", None)
    if status < 200 or status in _WITHOUT_CONTENT:
        return CachedResponse(status, tuple(shown.items()), 0, 0)
    outcome = Outcome(status, 0, length)
    if status in _WITH_PRECONDITIONS:
        outcome = _evaluated(request, headers, length)
    if outcome.status == 304:
        return CachedResponse(304, tuple((name, value) for name, value in shown.items() if name in _OF_304), 0, 0)
    if outcome.status == 416:
        shown = {name: shown[name] for name in ("x-content-type-options", SOURCE[0]) if name in shown}
        shown["content-range"] = f"bytes */{length}"
    elif outcome.status == 206:
        shown["content-range"] = f"bytes {outcome.start}-{outcome.stop - 1}/{length}"
    shown["content-length"] = str(outcome.stop - outcome.start)
    stop = outcome.start if request.method == "HEAD" else outcome.stop
    return CachedResponse(
        status if outcome.status == 200 else outcome.status, tuple(shown.items()), outcome.start, stop
    )


def _evaluated(request: CacheRequest, headers: Mapping[str, str], length: int) -> Outcome:
    fields = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in request.headers.items()]
    modified = parse_http_date(headers.get("last-modified", "").encode("latin-1"))
    validators = Validators(headers.get("etag", "").encode("latin-1"), modified)
    return evaluate(request.method.encode(), fields, validators, length)


def _directives(value: str) -> frozenset[str]:
    """Return the names of the directives in a Cache-Control, in lower case."""
    return frozenset(directive.partition("=")[0].strip().lower() for directive in value.split(","))


def _is_decodable(content_encoding: str | None, accept_encoding: str | None) -> bool:
    """Return whether a client that sent `accept_encoding` accepts a content coding (RFC 9110, 12.5.3)."""
    if content_encoding is None or accept_encoding is None:
        return True
    weights = parse_weights(accept_encoding.encode("latin-1", "replace"))
    rest = weights.get(b"*", 0.0)
    codings = [coding.strip().lower().encode("latin-1", "replace") for coding in content_encoding.split(",")]
    return all(weights.get(coding, rest) > 0 for coding in codings if coding not in (b"", b"identity"))
