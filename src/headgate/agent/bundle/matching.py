"""Which requests a bundle may answer, and how its response answers them.

A bundle stands where a cache would: it has whole responses to plain GETs, so it answers what a cache may answer with
those (RFC 9111, section 4), and leaves to the network what only an origin can know or do.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from headgate.http.accept import weigh
from headgate.http.conditional import Outcome, Validators, evaluate
from headgate.http.date import http_date

__all__ = ["SOURCE", "Answer", "Wanted", "answered", "wanted"]

SOURCE: Final = ("headgate-source", "bundle")
"""What an answer out of a bundle carries, at either end of a connection."""

_METHODS: Final = frozenset({"GET", "HEAD"})
_ORIGIN_ONLY: Final = ("if-match", "if-unmodified-since")
"""Preconditions that "are not applicable to a cache" (RFC 9111, 4.3.2)."""
_FRESHER: Final = frozenset({"no-cache", "no-store", "max-age", "min-fresh"})
"""Request directives (RFC 9111, 5.2.1) of one who wants the origin's word, or an age that no bundle can tell."""
_OF_THE_CONNECTION: Final = frozenset({
    "connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
})  # fmt: skip
_OF_304: Final = frozenset({
    "cache-control", "content-location", "date", "etag", "expires", "vary", "x-content-type-options", "headgate-source",
})  # fmt: skip
"""What a 304 repeats of the response (RFC 9110, 15.4.5)."""
_WITHOUT_CONTENT: Final = frozenset({204, 205, 304})
_WITH_PRECONDITIONS: Final = frozenset({200, 203})


class Wanted(Struct, frozen=True):
    """A request that a bundle may answer."""

    method: str
    headers: Mapping[str, str]
    """Names in lower case."""
    only_stored: bool
    """`only-if-cached`: whoever asks wants no network (RFC 9111, 5.2.1.7)."""


class Answer(Struct, frozen=True):
    """What to answer: of the payload, the bytes from `start` to before `stop`."""

    status: int
    headers: tuple[tuple[str, str], ...]
    start: int
    stop: int


def wanted(method: str, headers: Mapping[str, str]) -> Wanted | None:
    """Say what a request wants of a bundle; None where it wants the network: header names are in lower case.

    That is any other method than GET and HEAD, a body, a precondition on the origin's state, and a `Cache-Control` or
    `Pragma` that refuses what is merely stored.
    """
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    if method not in _METHODS or has_body or any(name in headers for name in _ORIGIN_ONLY):
        return None
    control = headers.get("cache-control")
    directives = _directives(headers.get("pragma", "") if control is None else control)
    if directives & _FRESHER:
        return None
    return Wanted(method, headers, "only-if-cached" in directives)


def answered(request: Wanted, status: int, headers: Mapping[str, str], length: int) -> Answer | None:
    """Say how a stored response, with a payload of `length` bytes, answers; None where it is of no use.

    `headers` are those a reader gives, nosniff included. Of no use is a content coding that the request refuses: its
    bytes could not be read.
    """
    if not _is_decodable(headers.get("content-encoding"), request.headers.get("accept-encoding")):
        return None
    shown = {name: value for name, value in headers.items() if name not in _OF_THE_CONNECTION}
    shown[SOURCE[0]] = SOURCE[1]
    shown.pop("content-length", None)
    if status < 200 or status in _WITHOUT_CONTENT:
        return Answer(status, tuple(shown.items()), 0, 0)
    outcome = Outcome(status, 0, length)
    if status in _WITH_PRECONDITIONS:
        outcome = _evaluated(request, headers, length)
    if outcome.status == 304:
        return Answer(304, tuple((name, value) for name, value in shown.items() if name in _OF_304), 0, 0)
    if outcome.status == 416:
        shown = {name: shown[name] for name in ("x-content-type-options", SOURCE[0]) if name in shown}
        shown["content-range"] = f"bytes */{length}"
    elif outcome.status == 206:
        shown["content-range"] = f"bytes {outcome.start}-{outcome.stop - 1}/{length}"
    shown["content-length"] = str(outcome.stop - outcome.start)
    stop = outcome.start if request.method == "HEAD" else outcome.stop
    return Answer(status if outcome.status == 200 else outcome.status, tuple(shown.items()), outcome.start, stop)


def _evaluated(request: Wanted, headers: Mapping[str, str], length: int) -> Outcome:
    fields = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in request.headers.items()]
    modified = http_date(headers.get("last-modified", "").encode("latin-1"))
    validators = Validators(headers.get("etag", "").encode("latin-1"), modified)
    return evaluate(request.method.encode(), fields, validators, length)


def _directives(value: str) -> frozenset[str]:
    """Give the names of the directives in a Cache-Control, in lower case."""
    return frozenset(directive.partition("=")[0].strip().lower() for directive in value.split(","))


def _is_decodable(content_encoding: str | None, accept_encoding: str | None) -> bool:
    """Say if whoever sent `accept_encoding` can read what is coded so (RFC 9110, 12.5.3)."""
    if content_encoding is None or accept_encoding is None:
        return True
    weights = weigh(accept_encoding.encode("latin-1", "replace"))
    rest = weights.get(b"*", 0.0)
    codings = [coding.strip().lower().encode("latin-1", "replace") for coding in content_encoding.split(",")]
    return all(weights.get(coding, rest) > 0 for coding in codings if coding not in (b"", b"identity"))
